"""The application: the command line, its flags, the display of progress, and views of parts."""
