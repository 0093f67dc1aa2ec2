// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// createQuestions asks for what 'create cluster' was not told. Each answer becomes the value of its flag, so
// that the command continues as if the flags had been given.
type createQuestions struct {
	app *app
	cmd *cobra.Command
	// build returns the manifests for the flags so far.
	build func(name string, zones []string) (manifest.Set, diag.Findings)
	name  string
	zones []string // the answer, or the default before it
	taken []string // the names of clusters that exist
}

const (
	// accessFlag is the flag of the ranges that reach the Kubernetes API.
	accessFlag = "api-access"
	// everybody is the default of that flag for a public API.
	everybody = "0.0.0.0/0"
)

// clusterQuestion asks for the value of one flag.
type clusterQuestion struct{ flag, text, byDefault string }

// errNotGiven returns the error for a command without a terminal that lacks NAME or --zones.
func errNotGiven(cmd *cobra.Command, name string, zones []string) error {
	var missing []string
	if name == "" {
		missing = append(missing, "NAME")
		name = "demo"
	}

	list := strings.Join(zones, ",")
	if list == "" {
		missing = append(missing, "--zones")
		list = "us-east-1a,us-east-1b,us-east-1c"
	}

	return withHint(
		fmt.Errorf("%s: not given: %s", cmd.CommandPath(), strings.Join(missing, ", ")),
		"for example: "+cmd.CommandPath()+" "+name+" --zones "+list+"; on a terminal slipway asks",
	)
}

// askAll asks all questions whose flags are not given, and prints the command that needs no questions.
func (q *createQuestions) askAll(ctx context.Context) error {
	q.app.printMessage("Press Enter for the value in brackets, Ctrl-C to stop. Nothing is written before you confirm.")
	q.readTaken(ctx)
	zones := q.defaultZones(ctx)
	if len(q.zones) == 0 {
		q.zones = zones
	}

	if q.name == "" {
		if err := q.askName(); err != nil {
			return err
		}
	}

	for _, question := range q.questions(zones) {
		if q.cmd.Flags().Changed(question.flag) || question.flag == accessFlag && q.isInternal() {
			continue
		}

		if err := q.askFlag(question); err != nil {
			return err
		}
	}

	q.app.printMessage("The same without questions:\n\n  %s\n", q.equivalent())

	return nil
}

// questions returns the questions after the name.
func (q *createQuestions) questions(zones []string) []clusterQuestion {
	return []clusterQuestion{
		{"zones", "Availability zones; three tolerate the loss of one", strings.Join(zones, ",")},
		{"control-plane-count", "Control-plane machines: 1, or 3 or 5 for high availability", "3"},
		{"control-plane-size", "Machine type of the control plane", manifest.DefaultMachineType},
		{"worker-count", "Workers", "2"},
		{"node-size", "Machine type of the workers", manifest.DefaultMachineType},
		{"api-loadbalancer-type", "Kubernetes API: Public (from the internet) or Internal (from the VPC only)", "Public"},
		{accessFlag, "Addresses that may reach the Kubernetes API, such as 198.51.100.0/24; 0.0.0.0/0 is everybody", everybody},
	}
}

// isInternal reports whether the API was asked to be reached from the VPC only.
func (q *createQuestions) isInternal() bool {
	return q.cmd.Flags().Lookup("api-loadbalancer-type").Value.String() == manifest.LoadBalancerInternal
}

// readTaken reads the names of the clusters in the state store. A name that cannot be checked now is checked when
// the cluster is written.
func (q *createQuestions) readTaken(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()

	s, _, err := q.app.stores().State(ctx)
	if err == nil {
		q.taken, _ = clusterstate.ListClusters(ctx, s)
	}
}

// defaultZones returns the first three zones of the region.
func (q *createQuestions) defaultZones(ctx context.Context) []string {
	const count = 3

	zones, err := completer{q.app}.listZones(ctx, q.cmd, "")
	if err != nil || len(zones) == 0 {
		zones = []string{"us-east-1a", "us-east-1b", "us-east-1c"}
	}

	return zones[:min(count, len(zones))]
}

func (q *createQuestions) askName() error {
	suggested := "demo"
	for n := 2; slices.Contains(q.taken, suggested); n++ {
		suggested = fmt.Sprintf("demo-%d", n)
	}

	return q.askUntilValid("Name of the cluster", suggested, func(answer string) error {
		if slices.Contains(q.taken, answer) {
			return withHint(fmt.Errorf("cluster %s already exists", answer), "choose another name")
		}

		before := q.name
		q.name = answer
		err := q.check()
		if err != nil {
			q.name = before
		}

		return err
	})
}

// askFlag asks for the value of a flag and sets it, unless it is the default.
func (q *createQuestions) askFlag(question clusterQuestion) error {
	flag := q.cmd.Flags().Lookup(question.flag)

	return q.askUntilValid(question.text, question.byDefault, func(answer string) error {
		switch {
		case flag.Name == "zones":
			q.zones = splitList(answer)
			return q.setList(flag, q.zones)
		case flag.Name == accessFlag && answer == everybody:
			return q.check()
		case flag.Name == accessFlag:
			return q.setList(flag, splitList(answer))
		}

		if answer == question.byDefault {
			return q.setFlag(flag, flag.DefValue, false)
		}

		return q.setFlag(flag, matchCase(answer, fixedFlagValues()[flag.Name]), true)
	})
}

// setFlag sets a flag, checks the manifests, and reports whether the flag is given from now on.
func (q *createQuestions) setFlag(flag *pflag.Flag, value string, given bool) error {
	if err := flag.Value.Set(value); err != nil {
		return fmt.Errorf("%q is not %s", value, describeFlagType(flag))
	}

	flag.Changed = given

	return q.check()
}

// splitList splits an answer at commas and spaces.
func splitList(answer string) []string {
	return strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' })
}

// setList sets a flag with a list.
func (q *createQuestions) setList(flag *pflag.Flag, values []string) error {
	list, ok := flag.Value.(pflag.SliceValue)
	if !ok {
		return fmt.Errorf("--%s is not a list", flag.Name)
	}

	if err := list.Replace(values); err != nil {
		return err
	}

	flag.Changed = true

	return q.check()
}

// matchCase returns the one of values that differs from answer in its case only, else answer.
func matchCase(answer string, values []string) string {
	for _, value := range values {
		if strings.EqualFold(value, answer) {
			return value
		}
	}

	return answer
}

// check returns what is wrong with the manifests for the answers so far.
func (q *createQuestions) check() error {
	name := q.name
	if name == "" {
		name = "demo"
	}

	set, findings := q.build(name, q.zones)
	findings = append(findings, manifest.Validate(manifest.Default(set))...)

	return findings.Err()
}

// askUntilValid asks until accept returns nil. An empty answer is the default.
func (q *createQuestions) askUntilValid(text, byDefault string, accept func(string) error) error {
	for {
		answer, err := q.app.ask(text + " [" + byDefault + "]: ")
		if err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}

		if answer == "" {
			answer = byDefault
		}

		err = accept(answer)
		if err == nil {
			return nil
		}

		if findings, ok := errors.AsType[diag.Findings](err); ok {
			q.app.printFindings(findings)
			continue
		}

		q.app.printError(err)
	}
}

// equivalent returns the command with all answers as flags.
func (q *createQuestions) equivalent() string {
	words := []string{q.cmd.CommandPath(), shellQuote(q.name)}
	q.cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !f.Changed || f.Name == "name":
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
		case f.Name == "zones":
			words = append(words, "--zones "+shellQuote(strings.Join(q.zones, ",")))
		case f.Name == accessFlag:
			values, _ := q.cmd.Flags().GetStringSlice(f.Name)
			words = append(words, "--"+f.Name+" "+shellQuote(strings.Join(values, ",")))
		default:
			words = append(words, "--"+f.Name+" "+shellQuote(f.Value.String()))
		}
	})

	return strings.Join(words, " ")
}
