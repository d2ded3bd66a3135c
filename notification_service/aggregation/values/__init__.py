"""The values of a store on the local disk, from which commands are applied."""
