//! Single cases that a model does not name.
