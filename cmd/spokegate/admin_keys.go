package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spokegate/spokegate/hub/api"
)

var keyNoun = noun{word: "key", heads: "KEY TEAM MODELS STATE LIMITS", row: func(b map[string]any) []string {
	return []string{word(b["team"]), words(b["models"]), keyState(b, time.Now()), limitWords(b["limits"])}
}}

// keyState is whether a key works.
func keyState(body map[string]any, now time.Time) string {
	if revoked, _ := body["revoked"].(bool); revoked {
		return "revoked"
	}
	at, err := time.Parse(time.RFC3339, word(body["expires"]))
	switch {
	case err != nil:
		return "works"
	case !now.Before(at):
		return "expired"
	}
	return "until " + day(at)
}

func listKeys(ctx context.Context, args []string) error {
	var team string
	c, _, err := hubCommand("key list", args, func(f *flag.FlagSet) { f.StringVar(&team, "team", "", "only keys of this `team`") })
	if err != nil {
		return err
	}
	query := url.Values{}
	if team != "" {
		query.Set("team", team)
	}
	return keyNoun.printAll(ctx, c, query)
}

// keyFlags describe a key that is to be.
type keyFlags struct {
	team, models, networks, sha256, message string
	expires                                 moment
	labels                                  pairs
}

func (k *keyFlags) register(f *flag.FlagSet) {
	k.labels = pairs{}
	f.StringVar(&k.team, "team", "", "the `team` that it belongs to")
	f.StringVar(&k.models, "models", "", "narrows the team's models: `names`, or beginnings with a final *, comma-separated")
	f.StringVar(&k.networks, "networks", "", "where it may be used from: `networks`, comma-separated; empty: everywhere")
	f.StringVar(&k.sha256, "sha256", "", "the `hash` of a secret that exists already, as `spokegate key new` prints it; empty: the hub makes a secret")
	f.Var(&k.expires, "expires", "the `time` at which it stops, such as 2027-01-31; empty: never")
	f.Var(k.labels, "label", "`NAME=VALUE` for usage records; may be given several times")
	messageFlag(f, &k.message)
}

func createKey(ctx context.Context, args []string) error {
	var k keyFlags
	c, given, err := hubCommand("key create", args, k.register, "ID")
	if err != nil {
		return err
	}
	return c.newSecret(ctx, "/v1/keys", api.NewKey{ID: given[0], Team: k.team, SHA256: k.sha256, Models: listed(k.models),
		Networks: listed(k.networks), Expires: k.expires.String(), Labels: k.labels, Message: k.message})
}

func rotateKey(ctx context.Context, args []string) error {
	var in api.Rotation
	var overlap time.Duration
	c, given, err := hubCommand("key rotate", args, func(f *flag.FlagSet) {
		f.StringVar(&in.NewID, "new-id", "", "the new key's `id` (default: the old one's with .2, .3 and so on)")
		f.DurationVar(&overlap, "overlap", 0, "for how long the old key works on, such as 24h; without it, it stops at once")
		messageFlag(f, &in.Message)
	}, "ID")
	if err != nil {
		return err
	}
	in.Overlap = overlap.String()
	return c.newSecret(ctx, keyNoun.path(given[0])+"/rotate", in)
}

// newSecret makes a key, and prints its secret: alone on standard output, so that it can go where it is kept.
func (c *hubClient) newSecret(ctx context.Context, path string, in any) error {
	var made api.KeyMade
	if err := c.ask(ctx, http.MethodPost, path, in, &made); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "key %s, revision %d\n", made.Key.Name, made.Revision.Number)
	if made.Old != nil {
		body, _ := parsed(made.Old.Body).(map[string]any)
		fmt.Fprintf(os.Stderr, "key %s: %s\n", made.Old.Name, keyState(body, time.Now()))
	}
	if made.Secret != "" {
		fmt.Fprintln(os.Stderr, "The secret is shown this once; the hub does not keep it.")
	}
	switch {
	case c.json:
		return printJSON(made)
	case made.Secret != "":
		fmt.Println(made.Secret)
	}
	return nil
}

func revokeHubKey(ctx context.Context, args []string) error {
	var in api.Reason
	c, given, err := hubCommand("key revoke", args, func(f *flag.FlagSet) { messageFlag(f, &in.Message) }, "ID")
	if err != nil {
		return err
	}
	var done api.Changed
	if err := c.ask(ctx, http.MethodPost, keyNoun.path(given[0])+"/revoke", in, &done); err != nil {
		return err
	}
	return c.said(done)
}

// runToken looks after the hub's admin tokens.
func runToken(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("token", args, map[string]role{"list": listTokens, "create": createToken, "revoke": revokeToken})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

func listTokens(ctx context.Context, args []string) error {
	c, _, err := hubCommand("token list", args, nil)
	if err != nil {
		return err
	}
	var list api.List[api.Token]
	if err := c.ask(ctx, http.MethodGet, "/v1/tokens", nil, &list); err != nil {
		return err
	}
	if c.json {
		return printJSON(list.Items)
	}
	var rows [][]string
	for _, t := range list.Items {
		rows = append(rows, []string{t.Name, t.Role, joined(t.Teams), tokenState(t, time.Now()), day(t.Created), dayOf(t.LastUsed)})
	}
	return table(os.Stdout, "TOKEN ROLE TEAMS STATE MADE USED", rows)
}

func tokenState(t api.Token, now time.Time) string {
	switch {
	case t.Revoked != nil:
		return "revoked"
	case t.Expires == nil:
		return "works"
	case !now.Before(*t.Expires):
		return "expired"
	}
	return "until " + day(*t.Expires)
}

func createToken(ctx context.Context, args []string) error {
	var teams string
	var expires moment
	in := api.NewToken{}
	c, given, err := hubCommand("token create", args, func(f *flag.FlagSet) {
		f.StringVar(&in.Role, "role", "auditor", "what it is good for: admin, team-owner or auditor")
		f.StringVar(&teams, "teams", "", "of a team owner: the `teams` whose keys it may change, comma-separated")
		f.Var(&expires, "expires", "the `time` at which it stops, such as 2027-01-31; empty: never")
	}, "NAME")
	if err != nil {
		return err
	}
	in.Name, in.Teams, in.Expires = given[0], listed(teams), expires.String()
	var made api.TokenMade
	if err := c.ask(ctx, http.MethodPost, "/v1/tokens", in, &made); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "The token is shown this once; the hub does not keep it.")
	if c.json {
		return printJSON(made)
	}
	fmt.Println(made.Secret)
	return nil
}

func revokeToken(ctx context.Context, args []string) error {
	c, given, err := hubCommand("token revoke", args, nil, "NAME")
	if err != nil {
		return err
	}
	if err := c.ask(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(given[0]), nil, nil); err != nil {
		return err
	}
	if !c.json {
		fmt.Println("revoked:", given[0])
	}
	return nil
}
