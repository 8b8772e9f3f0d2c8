"""Views of the console: each module has the views of one screen and its rows of PAGES."""
