"""Looking into a trained agent: what its critics say of policies, beside what these policies reach."""
