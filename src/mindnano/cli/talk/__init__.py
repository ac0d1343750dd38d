"""What `mindnano chat` is made of: who answers (an engine here, or a server), input lines, Markdown on a terminal."""
