"""Views of the console (functions that compute pages): each module has the views of one screen and
its rows in the table PAGES."""
