// Command spokegate is the one binary of the project: a subcommand a role.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spokegate/spokegate/doctor"
)

const usageText = `spokegate: the door before your GPUs

  spokegate up            a hub, a door, Envoy and three simulated workers on this machine
  spokegate door          the services beside one Envoy: admission, metering, picking, and Envoy's own configuration
  spokegate epp           a picker for other gateways, by the Endpoint Picker Protocol; epp status and epp explain ask a running
                          door or picker what its workers hold, and what it would choose
  spokegate worker        a shim before one engine; worker drain ends one without losing a request
  spokegate sim           the simulated engine
  spokegate hub           the control plane: what the policy consists of, its revisions, who holds which
  spokegate policy        check a policy file, print its JSON schema, revoke a key on one door
  spokegate key           make a key; at a hub: create, list, show, rotate, revoke and delete them
  spokegate team|model|endpoint|issuer|spoke|limit|revision|token
                          ask the hub, and change what it has
  spokegate apply         bring a whole policy file to the hub, as one revision
  spokegate usage         follow the usage records, export them, total them, prove that none is missing
  spokegate fleet status  the workers that have joined a door, and how they are
  spokegate bench route   replay a trace over simulated workers: what the picker is worth
  spokegate envoy         run starts a door's Envoy, and drains it at its end; print shows its configuration
  spokegate doctor        look at what runs, end to end: what is wrong, and how to mend it
  spokegate version       what this is

spokegate COMMAND -h tells its flags.
`

// role runs until its work is done or ctx is.
type role func(ctx context.Context, args []string) error

var roles = map[string]role{
	"up": runUp, "door": runDoor, "epp": runEPP, "worker": runWorker, "sim": runSim,
	"policy": runPolicy, "key": runKey, "usage": runUsage, "envoy": runEnvoy, "fleet": runFleet, "bench": runBench, "version": runVersion, "guard": runGuard,
	"hub": runHub, "doctor": runDoctor, "apply": runApply, "limit": runLimit, "revision": runRevision, "token": runToken,
	"team": runNoun("team", nil), "model": runNoun("model", nil), "endpoint": runNoun("endpoint", nil), "issuer": runNoun("issuer", nil),
	"spoke": runNoun("spoke", map[string]role{"status": spokeStatus, "deployment": spokeDeployment}),
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Print(usageText)
		return 0
	}
	r, ok := roles[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "spokegate: there is no command %q\n\n%s", args[0], usageText)
		return 2
	}
	boundGarbage()
	var status exitStatus
	err := r(ctx, args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2 // the flag package has said what is wrong
	case !errors.As(err, &status):
		status.status = 1
	case status.why == nil:
		return status.status
	}
	fmt.Fprintf(os.Stderr, "spokegate %s: %v\n", args[0], err)
	return status.status
}

// exitStatus ends the command with this status.
type exitStatus struct {
	status int
	why    error // nil: what there is to say was said
}

func (e exitStatus) Error() string {
	if e.why == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.why.Error()
}

// errUsage marks a command line that was explained to the user already.
var errUsage = errors.New("usage")

// parse reads a role's flags; what follows them must be exactly the named arguments.
func parse(f *flag.FlagSet, args []string, names ...string) error {
	synopsis := explain(f, names...)
	if err := explained(f, synopsis, f.Parse(args)); err != nil {
		return err
	}
	if f.NArg() != len(names) {
		if f.NArg() > len(names) {
			fmt.Fprintf(os.Stderr, "unexpected argument: %s\n", f.Arg(len(names)))
		} else {
			fmt.Fprintf(os.Stderr, "missing argument: %s\n", names[f.NArg()])
		}
		fmt.Fprintln(os.Stderr, synopsis)
		return errUsage
	}
	return nil
}

// explain answers what -h and a wrong flag print first; explained prints it.
func explain(f *flag.FlagSet, names ...string) (synopsis string) {
	words := []string{"usage: spokegate", f.Name()}
	f.VisitAll(func(*flag.Flag) { words[1] = f.Name() + " [flags]" })
	synopsis = strings.Join(append(words, names...), " ")
	f.Usage = func() {}
	return synopsis
}

// explained prints the synopsis, and all flags where -h asked for them; a wrong one would be lost among them.
func explained(f *flag.FlagSet, synopsis string, err error) error {
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println(synopsis)
		if text := aboutCommand(f.Name()); text != "" {
			fmt.Printf("It %s.\n", text)
		}
		f.SetOutput(os.Stdout)
		f.VisitAll(func(f *flag.Flag) { f.DefValue = doctor.Public(f.DefValue) }) // some are of the environment
		f.PrintDefaults()
		return err
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s\nspokegate %s -h tells the flags.\n", synopsis, f.Name())
		return errUsage
	}
	return nil
}

// pickSub takes a subcommand off args.
func pickSub(name string, args []string, subs map[string]role) (role, []string, error) {
	list := slices.Sorted(maps.Keys(subs))
	synopsis := fmt.Sprintf("usage: spokegate %s %s\n", name, strings.Join(list, "|"))
	if len(args) > 0 {
		if r, ok := subs[args[0]]; ok {
			return r, args[1:], nil
		}
		if slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
			fmt.Print(synopsis)
			for _, sub := range list {
				fmt.Printf("  %-10s  %s\n", sub, aboutCommand(name+" "+sub))
			}
			fmt.Printf("spokegate %s COMMAND -h tells its flags.\n", name)
			return nil, nil, flag.ErrHelp
		}
		fmt.Fprintf(os.Stderr, "spokegate %s: there is no command %q\n", name, args[0])
	}
	fmt.Fprintf(os.Stderr, "%sspokegate %s -h tells what each does.\n", synopsis, name)
	return nil, nil, errUsage
}
