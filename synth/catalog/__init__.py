"""The catalog: every algorithm of a team's machines, found once, measured, and chosen by message size ever after."""
