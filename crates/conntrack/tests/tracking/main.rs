//! The tracker from outside: packets in, states and packets out.
mod control;
mod fragments;
mod ftp;
mod hostile;
mod nat;
mod protocols;
mod related;
mod replay;
mod scene;
mod stacks;
mod stacks_tracked;
mod tcp;
mod tcp_random;
mod threads;
mod twin;
