//! S-MoE version 2.
