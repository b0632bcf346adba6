package main

import "strings"

// about says in one line what each command does, as -h tells it.
var about = map[string]string{
	"up":     "runs a hub, a door, Envoy and simulated workers on this machine, until Ctrl-C",
	"door":   "serves one Envoy: admission, metering, picking, and Envoy's own configuration",
	"epp":    "picks workers for a gateway, by the Endpoint Picker Protocol. spokegate epp status and spokegate epp explain ask one that runs, or a door",
	"worker": "stands before one engine. spokegate worker drain NAME ends one without losing a request",
	"sim":    "is an engine for trying things: it answers as OpenAI's API does, with words that mean nothing",
	"hub":    "keeps the policy of all spokes, and tells their doors of each change",

	"doctor": "looks at what runs, end to end, and says what is wrong and how to mend it. It changes nothing; exit status 0: nothing is to be done, 1: warnings, or something could not be looked at, 2: faults",

	"version": "says what this binary is, and with -sbom of what it was made",

	"epp status":    "shows how each worker stands with a running door or picker; docs/operating.md explains the columns",
	"epp explain":   "asks a running door or picker what it would choose for a request, and why; nothing is booked",
	"fleet status":  "shows the workers that have joined a running door or picker, and how they are",
	"worker drain":  "ends a worker when what it serves is done",
	"envoy print":   "prints the configuration that a door with these flags gives its Envoy",
	"envoy run":     "runs the Envoy of a door with these flags, and ends it without breaking off a request",
	"bench route":   "replays a trace over simulated workers, and compares ways to choose one",
	"policy check":  "tells every mistake of a policy file with its line and column",
	"policy schema": "prints the JSON schema of policy files",
	"policy revoke": "revokes a key on this door alone, at once, over every policy; also with the hub away",

	"usage tail":      "prints records as JSON lines: those that are there, and then each as it comes",
	"usage export":    "writes records as JSON lines or CSV",
	"usage reconcile": "joins what was admitted, served and billed, and tells what does not fit",
	"usage keys":      "prints the public keys that checkpoints of journals are signed with",
	"usage ledger":    "keeps totals by team, key, model and hour, and serves them over HTTP",

	"apply":      "brings a whole policy file to the hub as one revision, and tells what it changes",
	"key new":    "makes a key without a hub, and the line for a policy file",
	"key create": "makes a key at the hub, and prints its secret, once",
	"key list":   "shows all keys, or those of a team",
	"key rotate": "makes a key with all that ID has, and prints its secret; the old one works on for -overlap",
	"key revoke": "has a key refused everywhere, within seconds; only a rollback with -revive takes it back",

	"limit list":   "shows all limits, or those of OWNER: platform, team/NAME, key/ID, model/NAME or issuer/NAME",
	"limit set":    "changes what is said of a limit and leaves the rest; none takes a value away",
	"limit delete": "takes a limit away",

	"revision list":     "shows the latest revisions",
	"revision show":     "shows who made a revision, why, and what it changed",
	"revision diff":     "shows what changed between two revisions; with one, what it changed itself",
	"revision rollback": "makes a new revision with what an earlier one had; revoked keys stay revoked, later ones are gone",
	"revision audit":    "shows who changed what, tokens too",

	"spoke status":     "shows which door holds which revision; ends with 1 where one does not hold the latest",
	"spoke deployment": "prints the YAML of what a spoke is to run",

	"token list":   "shows who may use the hub's API",
	"token create": "makes a token for the hub's API, and prints it, once",
	"token revoke": "has a token refused, for good",
}

// aboutThings are what can be done with each kind of things.
var aboutThings = map[string]string{
	"list":   "shows all that there are",
	"show":   "prints one as a policy file has it, to be changed and applied",
	"create": "makes one that is not there yet",
	"apply":  "makes or changes what a file has: one thing, or a list of them as one revision",
	"delete": "deletes one that nothing else needs",
}

// aboutCommand says what a command does; empty: nobody has said.
func aboutCommand(name string) string {
	if text, ok := about[name]; ok {
		return text
	}
	_, verb, _ := strings.Cut(name, " ")
	return aboutThings[verb]
}
