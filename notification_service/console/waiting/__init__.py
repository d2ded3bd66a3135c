"""The waiting units: a copy of the storage's index, its pages, and what is ordered for all that a filter lets through."""
