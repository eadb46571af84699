"""Readers and writers of JSON, XML and text that believe nothing about what they read."""
