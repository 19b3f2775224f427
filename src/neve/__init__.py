"""Embeddable primary-key tables for the lakehouse."""
