"""What the sends of a schedule do: their routes and rounds, those that are dead, and the bits of their sums."""
