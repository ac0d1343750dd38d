"""For all tests."""

import signal

# A shell starts background commands with SIGINT ignored, and children inherit that: tests of Ctrl-C would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
