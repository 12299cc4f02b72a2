"""The one place that knows our version."""

VERSION = "0.1.0"
