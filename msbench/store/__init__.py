"""The database: tables, rows, conversions, transactions, migrations and runs."""
