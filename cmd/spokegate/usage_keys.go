package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/usage/balance"
)

// trustedKeys are the fingerprints that sources may sign by.
type trustedKeys map[string][]string

func (k trustedKeys) has(source, fingerprint string) bool {
	return slices.Contains(k[source], fingerprint)
}

// readTrust reads lines of a source and a fingerprint. A source may have several; # begins a comment.
func readTrust(path string) (trustedKeys, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-trust: %w", err)
	}
	defer f.Close()
	keys := trustedKeys{}
	in := bufio.NewScanner(f)
	for line := 1; in.Scan(); line++ {
		text, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 || !strings.Contains(words[0], "/") || !strings.HasPrefix(words[1], "SHA256:") {
			return nil, fmt.Errorf("-trust: %s, line %d: want a source and a fingerprint, such as: door/main SHA256:…", path, line)
		}
		keys[words[0]] = append(keys[words[0]], words[1])
	}
	return keys, in.Err()
}

// keysUsage prints by which keys sources have signed, as -trust of `usage reconcile` reads it.
func keysUsage(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("usage keys", flag.ContinueOnError)
	var from evidenceFlags
	from.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := from.check(namedOf(f)); err != nil {
		return badUsage(f, err)
	}
	evidence, err := from.open(ctx, time.Time{})
	if err != nil {
		return err
	}
	chains := usage.NewAuditor(func(usage.Mismatch) {}) // which `usage reconcile` tells
	progress := newProgress(os.Stderr)
	defer progress.end()
	err = evidence.Read(ctx, func(it balance.Item) error {
		if it.Err == nil && it.Record.Checkpoint != nil {
			if l, err := usage.LinkOf(it.Record, it.Body); err == nil {
				chains.Add(l)
			}
		}
		return nil
	}, progress.of("read"))
	if err != nil {
		return err
	}
	var lines []string
	for _, p := range chains.Finish() {
		for _, key := range p.Fingerprints {
			lines = append(lines, p.Source+" "+key)
		}
	}
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		fmt.Println(line)
	}
	return nil
}
