// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/cluster/sshaccess"
)

// sshOptions are the flags of 'slipway ssh'.
type sshOptions struct {
	name    string
	via     string
	proxy   string
	request sshaccess.Request
}

func newSSHCommand(a *app) *cobra.Command {
	var o sshOptions
	cmd := &cobra.Command{
		Use:     "ssh MACHINE [-- COMMAND...]",
		Short:   "Open a shell on a machine",
		GroupID: groupCluster,
		Long: `Open a shell on a machine of a cluster, or run COMMAND on it, with your own programs. The first way that is possible is used:

  session-manager   spec.machineAccess.sessionManager is true, and aws and session-manager-plugin are installed here
  direct            an SSH server answers at the public address; with --via direct also at the private one; or
                    --proxy-command connects to private addresses, such as that of a VPN or of the local region
  bastion           the cluster has a group of role Bastion; ssh goes through its load balancer or public address
  instance-connect  spec.machineAccess.instanceConnectSecurityGroup is set; aws opens the connection

MACHINE is an instance id, a node, an address, a control-plane slot such as control-plane-a, or a group with one machine.
The login is that of the group's distribution; ssh takes the key from your agent, your configuration or --identity. slipway
reads no key. With --print-command, print the command instead of running it.

EXIT STATUS
  that of the command; 1 if there is no way to the machine`,
		Example: "  slipway ssh control-plane-a --name demo\n  slipway ssh i-0123 -- journalctl -u kubelet -n 50\n" +
			"  slipway ssh i-0123 --via bastion --print-command",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return requireOneArgument("MACHINE")(cmd, args)
			}

			if len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return limitArguments(cmd, args, 1)
			}

			name, err := clusterOfFlag(a, o.name)
			if err != nil {
				return err
			}

			o.request.Path = sshaccess.Path(o.via)
			o.request.Command = args[1:]

			return sshRunner{a}.runSSH(cmd.Context(), name, args[0], o)
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	flags.StringVar(&o.via, "via", "", "session-manager, direct, bastion or instance-connect (default: the first that is possible)")
	flags.StringVarP(&o.request.User, "user", "u", "", "login (default: that of the group's distribution)")
	flags.StringVarP(&o.request.Identity, "identity", "i", "", "private key file for ssh")
	flags.StringVar(&o.proxy, "proxy-command", "", "command that connects to private addresses, as ssh's ProxyCommand (SLIPWAY_SSH_PROXY)")
	flags.BoolVar(&o.request.PrintOnly, "print-command", false, "print the command instead of running it")

	return cmd
}

// sshRunner opens shells on machines.
type sshRunner struct{ *app }

// runSSH finds a way to a machine and runs the command for it.
func (a sshRunner) runSSH(ctx context.Context, name, target string, o sshOptions) error {
	live, err := inventory.Open(ctx, a.newClusterEnv(), name)
	if err != nil {
		return err
	}

	machines, err := live.ReadMachines(ctx)
	if err != nil {
		return err
	}

	machine, err := inventory.FindMachine(machines, target)
	if err != nil {
		return err
	}

	facts, err := sshaccess.Gather(ctx, live, machines, machine, o.request.Path == sshaccess.Direct)
	if err != nil {
		return err
	}

	facts.Profile = a.profile
	facts.ProxyCommand = a.flagOrEnv(o.proxy, "SLIPWAY_SSH_PROXY")
	command, err := sshaccess.Choose(facts, o.request)
	if err != nil {
		return err
	}

	if o.request.PrintOnly {
		words := make([]string, len(command.Args))
		for i, word := range command.Args {
			words[i] = shellQuote(word)
		}

		fmt.Fprintln(a.Stdout, strings.Join(words, " "))

		return nil
	}

	return a.runShell(ctx, command)
}

// runShell runs a command with this process's streams. Its exit status becomes that of slipway.
func (a sshRunner) runShell(ctx context.Context, command sshaccess.Command) error {
	run := exec.CommandContext(ctx, command.Args[0], command.Args[1:]...)
	run.Stdin = a.Stdin
	run.Stdout = a.Stdout
	run.Stderr = a.Stderr
	err := run.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return ExitError{Code: exit.ExitCode()}
	}

	if err != nil {
		return fmt.Errorf("run %s (%s): %w", command.Args[0], command.Path, err)
	}

	return nil
}
