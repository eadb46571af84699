"""Times of programs over message sizes, and what a frontier predicts for them."""
