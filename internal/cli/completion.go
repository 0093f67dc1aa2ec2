// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// completionTimeout is how long a press of the Tab key may take.
const completionTimeout = 2 * time.Second

// The shells that 'slipway completion' supports.
const (
	shellBash       = "bash"
	shellZsh        = "zsh"
	shellFish       = "fish"
	shellPowerShell = "powershell"
)

func newCompletionCommand(a *app) *cobra.Command {
	shells := []string{shellBash, shellZsh, shellFish, shellPowerShell}

	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the completion script of a shell",
		Long: `Print a script that makes the Tab key complete commands, flags and the names of clusters, groups, zones, machine types
and Kubernetes versions. Names come from the state store and from AWS; what does not answer within 2 seconds is not
offered. Bash needs the package bash-completion.` + exitStatusHelp(),
		Example: `  source <(slipway completion bash)
  slipway completion bash > /etc/bash_completion.d/slipway
  slipway completion zsh > "${fpath[1]}/_slipway"
  slipway completion fish > ~/.config/fish/completions/slipway.fish
  slipway completion powershell | Out-String | Invoke-Expression`,
		GroupID:   groupLocal,
		ValidArgs: shells,
		Args:      requireOneArgument("SHELL (" + strings.Join(shells, ", ") + ")"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case shellBash:
				return root.GenBashCompletionV2(a.Stdout, true)
			case shellZsh:
				return root.GenZshCompletion(a.Stdout)
			case shellFish:
				return root.GenFishCompletion(a.Stdout, true)
			case shellPowerShell:
				return root.GenPowerShellCompletionWithDesc(a.Stdout)
			}

			return withHint(
				fmt.Errorf("there is no completion for shell %q", args[0]),
				"use "+strings.Join(shells, ", "),
			)
		},
	}
}

// listNames returns the names that a flag or an argument can have. It may fail, and take as long as ctx allows.
type listNames func(ctx context.Context, cmd *cobra.Command, prefix string) ([]string, error)

// completer completes the arguments and flags of commands from the state store.
type completer struct{ *app }

// addCompletions adds the completion of names to all commands below root, by the names of their flags and by
// the arguments in their usage.
func (a completer) addCompletions(root *cobra.Command) {
	byFlag := map[string]listNames{
		"name":               a.listClusters,
		"zones":              a.listZones,
		"control-plane-size": listMachineTypes,
		"node-size":          listMachineTypes,
		"machine-type":       listMachineTypes,
		"kubernetes-version": a.listKubernetesVersions,
		"group":              a.listGroups,
		"region":             listRegions,
	}
	for name, values := range fixedFlagValues() {
		byFlag[name] = func(context.Context, *cobra.Command, string) ([]string, error) { return values, nil }
	}

	a.addCompletionsBelow(root, byFlag)
}

// fixedFlagValues returns the values of flags that have only a few.
func fixedFlagValues() map[string][]string {
	return map[string][]string{
		"via":                   {"direct", "cloudformation"},
		"api-loadbalancer-type": {"Public", "Internal"},
		"nat-gateways":          {"PerZone", "Single", "None"},
		"control-plane-count":   {"1", "3", "5"},
	}
}

func (a completer) addCompletionsBelow(cmd *cobra.Command, byFlag map[string]listNames) {
	complete := func(f *pflag.Flag) {
		if list, ok := byFlag[f.Name]; ok && f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, a.completeNames(list)) // fails if the command has its own
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)

	if lists := a.argumentNames(cmd); len(lists) > 0 && cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(lists) || lists[len(args)] == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}

			return a.completeNames(lists[len(args)])(cmd, args, prefix)
		}
	}

	for _, sub := range cmd.Commands() {
		a.addCompletionsBelow(sub, byFlag)
	}
}

// argumentNames returns the names of each argument in the usage of a command; nil for an argument that is no name of a
// cluster or a group.
func (a completer) argumentNames(cmd *cobra.Command) []listNames {
	words := strings.Fields(cmd.Use)
	if cmd.HasSubCommands() {
		return nil
	}

	if cmd.Name() == "cluster" && cmd.HasParent() && cmd.Parent().Name() == "create" {
		return nil // the name of a new cluster
	}

	var lists []listNames
	for _, word := range words[1:] {
		if word == "|" || strings.HasPrefix(word, "-") {
			break // another name in its place, or a flag
		}

		var list listNames
		switch strings.Trim(word, "[]") {
		case "NAME":
			list = a.listClusters
		case "GROUP":
			list = a.listGroups
		}

		lists = append(lists, list)
	}

	return lists
}

// completeNames returns list as a completion function. It offers nothing if list fails, panics or takes too
// long: a shell must never hang or print an error while a person types.
func (a completer) completeNames(list listNames) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()

		done := make(chan []string, 1)

		go func() {
			defer func() { _ = recover() }()

			names, err := list(ctx, cmd, prefix)
			if err != nil {
				names = nil
			}

			done <- names
		}()

		var names []string

		select {
		case names = <-done:
		case <-ctx.Done():
		}

		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
		directive := cobra.ShellCompDirectiveNoFileComp
		if strings.Contains(prefix, ",") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}

		return names, directive
	}
}

// listClusters returns the clusters of the state store.
func (a completer) listClusters(ctx context.Context, _ *cobra.Command, _ string) ([]string, error) {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return nil, err
	}

	return clusterstate.ListClusters(ctx, s)
}

// listGroups returns the groups of the cluster that --name, SLIPWAY_CLUSTER or the configuration names.
func (a completer) listGroups(ctx context.Context, cmd *cobra.Command, _ string) ([]string, error) {
	flag := ""
	if f := cmd.Flags().Lookup("name"); f != nil {
		flag = f.Value.String()
	}

	name, err := clusterOfFlag(a.app, flag)
	if err != nil {
		return nil, err
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return nil, err
	}

	return clusterstate.ListGroups(ctx, s, name)
}

// listZones completes the last zone of a list: with the zones of the region that offer Slipway's default machine
// type, or, if AWS does not answer, with the zones that most regions have.
func (a completer) listZones(ctx context.Context, _ *cobra.Command, prefix string) ([]string, error) {
	before := ""
	if comma := strings.LastIndex(prefix, ","); comma >= 0 {
		before = prefix[:comma+1]
	}

	zones, err := a.readZones(ctx)
	if err != nil {
		region := a.flagOrEnv(a.region, "AWS_REGION")
		if region == "" {
			return nil, err
		}

		zones = []string{region + "a", region + "b", region + "c"}
	}

	var out []string
	for _, zone := range zones {
		if !slices.Contains(strings.Split(before, ","), zone) {
			out = append(out, before+zone)
		}
	}

	return out, nil
}

// readZones returns the zones of the region. It leaves time to answer without AWS.
func (a completer) readZones(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout*3/4)
	defer cancel()

	cfg, err := a.awsConfig(ctx, "")
	if err != nil {
		return nil, err
	}

	byType, err := discovery.ListInstanceTypeZones(ctx, cfg, []string{manifest.DefaultMachineType})
	zones := byType[manifest.DefaultMachineType]
	slices.Sort(zones)

	return zones, err
}

// listMachineTypes returns the known EC2 instance types, with their size: one family at a time, since there are
// hundreds.
func listMachineTypes(_ context.Context, _ *cobra.Command, prefix string) ([]string, error) {
	var out []string
	for _, name := range manifest.InstanceTypeNames(prefix) {
		t, ok := manifest.FindInstanceType(name)
		if !ok {
			continue
		}

		const mebibytesPerGibibyte = 1024
		out = append(out, cobra.CompletionWithDesc(
			name,
			fmt.Sprintf("%d vCPU, %d GiB, %s", t.VCPU, t.MemoryMiB/mebibytesPerGibibyte, t.Arch),
		))
	}

	return out, nil
}

// listKubernetesVersions returns the versions in the asset catalogue.
func (a completer) listKubernetesVersions(ctx context.Context, _ *cobra.Command, _ string) ([]string, error) {
	catalog, err := manifests.LoadCatalog(ctx, a.catalogSource())
	if err != nil {
		return nil, err
	}

	return catalog.Versions("kubelet"), nil
}

// listRegions returns the regions that are enabled in every AWS account.
func listRegions(context.Context, *cobra.Command, string) ([]string, error) {
	return []string{
		"ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2",
		"ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1",
		"us-east-1", "us-east-2", "us-west-1", "us-west-2",
	}, nil
}
