//go:build !linux

package main

func coarseTimers() {}
