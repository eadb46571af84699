"""What people look at: tables, HTML for notebooks, plots, drawings. Reads values, decides nothing."""
