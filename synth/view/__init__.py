"""Views of values for people: tables, HTML for notebooks, plots, drawings. They decide nothing."""
