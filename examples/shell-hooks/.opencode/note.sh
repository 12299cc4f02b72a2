# Told when a session has come to rest; a desktop notification would do as well.
cat >>idle.log
echo >>idle.log
