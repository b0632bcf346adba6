package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spokegate/spokegate/hub/api"
	"github.com/spokegate/spokegate/policy"
)

// applyFlags of `apply`.
type applyFlags struct {
	file, spoke, message string
	replace, revive      bool
	dryRun               bool
}

func (a *applyFlags) register(f *flag.FlagSet) {
	f.StringVar(&a.file, "f", "", "the policy `file`; -: standard input")
	f.StringVar(&a.spoke, "spoke", "", "the `spoke` that its endpoints run in; made if it is not there. Empty: the hub places those that have none yet")
	f.BoolVar(&a.replace, "replace", false, "delete what the file does not have, keys too; but for spokes")
	f.BoolVar(&a.revive, "revive", false, "take the file's word also of what was revoked: keys and subjects that it does not call so work again, and keys without expiry never expire")
	f.BoolVar(&a.dryRun, "dry-run", false, "print what would be changed, and change nothing")
	messageFlag(f, &a.message)
}

// runApply takes a whole policy file over, as one revision.
func runApply(ctx context.Context, args []string) error {
	var a applyFlags
	c, _, err := hubCommand("apply", args, a.register)
	if err != nil {
		return err
	}
	if a.file == "" {
		return misused("apply", "-f is missing: the policy file to apply, or - for standard input")
	}
	data, err := readFile(a.file)
	if err != nil {
		return err
	}
	if _, err := policy.Parse(a.file, data); err != nil { // here it has the file's name
		return fmt.Errorf("%s is refused:\n%w", a.file, err)
	}
	query := url.Values{}
	for name, value := range map[string]string{"message": a.message, "spoke": a.spoke} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if a.replace {
		query.Set("replace", "true")
	}
	if a.revive {
		query.Set("revive", "true")
	}
	if a.dryRun {
		query.Set("dry_run", "true")
	}
	return a.send(ctx, c, "/v1/import?"+query.Encode(), data)
}

func (a *applyFlags) send(ctx context.Context, c *hubClient, path string, data []byte) error {
	answer, err := c.send(ctx, http.MethodPost, path, "application/yaml", data)
	if err != nil {
		return err
	}
	var done api.Imported
	if err := json.Unmarshal(answer, &done); err != nil {
		return err
	}
	if c.json {
		return printJSON(done)
	}
	printDifferences(os.Stdout, done.Changes)
	if a.dryRun {
		fmt.Printf("nothing was changed; revision %d stays\n", done.Revision.Number)
		return nil
	}
	return c.saidRevision(done.Revision)
}
