# Asked before every shell command: the call is one line of JSON on standard input. Exit code 2 forbids it.
case $(cat) in
*'&&'*)
    echo "One command at a time, please: run them in calls of their own." >&2
    exit 2
    ;;
esac
