"""A receiver of payment status notifications by HTTP that sleeps, refuses, limits, forgets and fails as its settings say."""
