// SPDX-License-Identifier: Apache-2.0

// Package sshaccess finds how an operator gets a shell on a machine: through AWS Systems Manager, through the
// cluster's bastion, through an EC2 Instance Connect Endpoint, or directly.
//
// [Choose] decides from [Facts] and returns a command of the operator's own tools; it is pure. [Gather] reads the
// facts. The package never sees a private key, and it changes nothing.
package sshaccess

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Path is a way to a machine.
type Path string

// The paths, in the order in which they are tried.
const (
	// SessionManager is a session of AWS Systems Manager: no open port, no SSH key.
	SessionManager Path = "session-manager"
	// Direct is SSH to an address of the machine that answers from here, or that the operator's proxy command reaches.
	Direct Path = "direct"
	// Bastion is SSH through a bastion.
	Bastion Path = "bastion"
	// InstanceConnect is SSH through an EC2 Instance Connect Endpoint.
	InstanceConnect Path = "instance-connect"
)

// Paths returns all paths in the order in which they are tried.
func Paths() []Path { return []Path{SessionManager, Direct, Bastion, InstanceConnect} }

// Facts are what the decision depends on.
type Facts struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Region and Profile are for the AWS CLI; an empty profile is the default.
	Region, Profile string
	// Machine to reach.
	Machine inventory.Machine
	// User is the login of the machine's image; empty if it is unknown.
	User string
	// BastionUser is the login of the bastion's image; empty if it is unknown.
	BastionUser string
	// BastionHost is the address of the bastions as clients reach it; empty if there is no bastion.
	BastionHost string
	// SessionManager is spec.machineAccess.sessionManager.
	SessionManager bool
	// InstanceConnect is set if the manifest names the security group of an Instance Connect Endpoint.
	InstanceConnect bool
	// OpenAddress is an address of the machine whose port 22 answers from here; empty if there is none.
	OpenAddress string
	// ProxyCommand is the operator's command that connects to addresses in the VPC, as ssh's ProxyCommand, such as the
	// client of a VPN; empty if there is none.
	ProxyCommand string
	// Tools are the programs that are installed here.
	Tools []string
}

// The programs that commands use.
const (
	toolSSH    = "ssh"
	toolAWS    = "aws"
	toolPlugin = "session-manager-plugin"
)

// Tools returns the names of all programs that a command may need.
func Tools() []string { return []string{toolSSH, toolAWS, toolPlugin} }

// Request is what the operator asks for.
type Request struct {
	// Path to use; empty: the first that is possible.
	Path Path
	// User overrides the login.
	User string
	// Identity is a private key file for ssh -i; empty: ssh's default.
	Identity string
	// Command to run on the machine; empty: a shell.
	Command []string
	// PrintOnly is set if the command is not run here, so that missing programs do not matter.
	PrintOnly bool
}

// Command is how to get a shell.
type Command struct {
	// Path that it uses.
	Path Path
	// Args are the program and its arguments.
	Args []string
}

// Choose returns the command for a request, or an error that says why no path is possible and what enables one.
func Choose(f Facts, req Request) (Command, error) {
	if f.Machine.State != "running" {
		return Command{}, diag.WithHint(
			fmt.Errorf("machine %s is %s", f.Machine.ID, f.Machine.State),
			"read its console with: slipway logs "+f.Machine.ID+" --console",
		)
	}

	if req.User != "" {
		f.User = req.User
		f.BastionUser = req.User
	}

	if req.Path != "" && !slices.Contains(Paths(), req.Path) {
		return Command{}, diag.WithHint(
			fmt.Errorf("invalid --via %q", req.Path),
			"use one of session-manager, direct, bastion, instance-connect",
		)
	}

	var reasons []error

	for _, p := range Paths() {
		if req.Path != "" && p != req.Path {
			continue
		}

		args, err := f.commandFor(p, req)
		if err == nil {
			return Command{Path: p, Args: args}, nil
		}

		reasons = append(reasons, fmt.Errorf("%s: %w", p, err))
	}

	return Command{}, diag.WithHint(
		fmt.Errorf("no way to a shell on %s: %w", f.Machine.ID, errors.Join(reasons...)),
		"logs need no shell: slipway logs "+f.Machine.ID,
	)
}

// commandFor returns the command of one path, or why it is not possible.
func (f Facts) commandFor(p Path, req Request) ([]string, error) {
	switch p {
	case SessionManager:
		return f.sessionCommand(req)
	case Direct:
		return f.directCommand(req)
	case Bastion:
		return f.bastionCommand(req)
	default:
		return f.instanceConnectCommand(req)
	}
}

func (f Facts) sessionCommand(req Request) ([]string, error) {
	if !f.SessionManager {
		return nil, errors.New("spec.machineAccess.sessionManager is false; set it to true and apply, with an image that has the SSM agent")
	}

	if err := f.require(req, toolAWS, toolPlugin); err != nil {
		return nil, err
	}

	args := append(f.awsCommand("ssm", "start-session"), "--target", f.Machine.ID)
	if len(req.Command) > 0 {
		args = append(
			args,
			"--document-name", "AWS-StartInteractiveCommand",
			"--parameters", `{"command":[`+quoteJSON(strings.Join(req.Command, " "))+`]}`,
		)
	}

	return args, nil
}

func (f Facts) directCommand(req Request) ([]string, error) {
	if f.ProxyCommand != "" {
		if err := f.requireSSH(req); err != nil {
			return nil, err
		}

		return f.sshCommand(req, f.Machine.PrivateAddress, f.ProxyCommand), nil
	}

	if f.OpenAddress == "" {
		return nil, errors.New("port 22 of the machine does not answer from here")
	}

	if err := f.requireSSH(req); err != nil {
		return nil, err
	}

	return f.sshCommand(req, f.OpenAddress, ""), nil
}

func (f Facts) bastionCommand(req Request) ([]string, error) {
	if f.BastionHost == "" {
		return nil, errors.New("the cluster has no bastion; add an InstanceGroup of role Bastion with spec.sshAccess, and apply")
	}

	if err := f.requireSSH(req); err != nil {
		return nil, err
	}

	if f.Machine.Role == inventory.RoleBastion {
		return f.sshCommand(req, f.BastionHost, ""), nil
	}

	if f.BastionUser == "" {
		return nil, errors.New("the login of the bastion's image is not known; give --user")
	}

	return f.sshCommand(req, f.Machine.PrivateAddress, f.jumpCommand(req, f.BastionUser+"@"+f.BastionHost)), nil
}

func (f Facts) instanceConnectCommand(req Request) ([]string, error) {
	if !f.InstanceConnect {
		return nil, errors.New("spec.machineAccess.instanceConnectSecurityGroup is not set")
	}

	if err := f.require(req, toolAWS, toolSSH); err != nil {
		return nil, err
	}

	if f.User == "" {
		return nil, errors.New("the login of the machine's image is not known; give --user")
	}

	if len(req.Command) > 0 {
		return nil, errors.New("the AWS CLI runs no command through an endpoint; leave the command out")
	}

	args := append(f.awsCommand("ec2-instance-connect", "ssh"), "--instance-id", f.Machine.ID)
	args = append(args, "--connection-type", "eice", "--os-user", f.User)
	if req.Identity != "" {
		args = append(args, "--private-key-file", req.Identity)
	}

	return args, nil
}

// requireSSH returns why ssh cannot be used.
func (f Facts) requireSSH(req Request) error {
	if f.User == "" {
		return errors.New("the login of the machine's image is not known; give --user")
	}

	return f.require(req, toolSSH)
}

// require returns an error that names the missing programs.
func (f Facts) require(req Request, tools ...string) error {
	if req.PrintOnly {
		return nil
	}

	var missing []string
	for _, t := range tools {
		if !slices.Contains(f.Tools, t) {
			missing = append(missing, t)
		}
	}

	if len(missing) > 0 {
		return fmt.Errorf("%s is not installed here", strings.Join(missing, " and "))
	}

	return nil
}

// sshCommand returns the command that logs in at host, through a proxy command if that is not empty. Host keys are stored
// under the machine's id, since addresses are used again.
func (f Facts) sshCommand(req Request, host, proxy string) []string {
	args := []string{toolSSH, "-o", "HostKeyAlias=" + f.Machine.ID, "-o", "StrictHostKeyChecking=accept-new"}
	if req.Identity != "" {
		args = append(args, "-i", req.Identity)
	}

	if proxy != "" {
		args = append(args, "-o", "ProxyCommand="+proxy)
	}

	args = append(args, f.User+"@"+host)
	if len(req.Command) > 0 {
		args = append(args, "--")
		args = append(args, req.Command...)
	}

	return args
}

// jumpCommand returns the command that connects through the bastion. It is not ssh -J, which would use neither the key
// nor the name for the bastion's host key: bastions behind a load balancer have one address and several keys.
func (f Facts) jumpCommand(req Request, jump string) string {
	words := []string{toolSSH, "-o", "HostKeyAlias=bastion." + f.Cluster, "-o", "StrictHostKeyChecking=accept-new"}
	if req.Identity != "" {
		words = append(words, "-i", quoteWord(req.Identity))
	}

	return strings.Join(append(words, "-W", "%h:%p", jump), " ")
}

// awsCommand returns the AWS CLI's command for the cluster's region.
func (f Facts) awsCommand(words ...string) []string {
	args := append([]string{toolAWS}, words...)
	args = append(args, "--region", f.Region)
	if f.Profile != "" {
		args = append(args, "--profile", f.Profile)
	}

	return args
}

// quoteWord quotes a file name for the shell that runs a ProxyCommand; % begins a token of ssh there.
func quoteWord(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "%", "%%"), "'", `'\''`) + "'"
}

// LoginOf returns the login of an image by its name or description; empty if it is not known. Each distribution
// documents its own.
func LoginOf(image string) string {
	text := strings.ToLower(image)
	for _, known := range []struct{ part, user string }{
		{"debian", "admin"},
		{"ubuntu", "ubuntu"},
		{"canonical", "ubuntu"},
		{"amazon-linux", "ec2-user"},
		{"al2023", "ec2-user"},
		{"flatcar", "core"},
	} {
		if strings.Contains(text, known.part) {
			return known.user
		}
	}

	return ""
}
