"""The sends of a schedule: their routes and rounds, those that are dead, and the bits of their sums."""
