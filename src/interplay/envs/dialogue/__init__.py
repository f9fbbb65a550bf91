"""Settings in which a judge, and not a rule, says what a reply is worth; each has an exact gold score all the same."""
