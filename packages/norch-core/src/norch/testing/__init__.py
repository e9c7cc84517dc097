"""The test kit that norch ships: sample records for every op, gradient checks, and backends made for testing."""
