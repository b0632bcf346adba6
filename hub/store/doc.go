// Package store keeps what the hub knows in a database: a file of SQLite, or PostgreSQL. It is temporal: each version of a thing
// has the revision that made it and the one that ended it, so every revision can be read as it was.
//
// It promises that what one [Store.Update] writes is there whole or not at all, and survives a loss of power once Update has
// returned; and that updates come one after the other, over all processes that share the database, so that each sees what the
// one before it wrote. It judges nothing: package hub does.
package store
