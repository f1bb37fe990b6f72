# Exit codes
INTERRUPTED = 130  # after Ctrl-C
REFUSED = 5
