"""Running the services: embedded Postgres, the Prefect server, a worker; and checking the machine."""
