"""What runs beside training and answers over HTTP."""
