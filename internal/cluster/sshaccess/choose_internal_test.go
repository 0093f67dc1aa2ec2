// SPDX-License-Identifier: Apache-2.0

package sshaccess

import (
	"net"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

func worker() inventory.Machine {
	return inventory.Machine{ID: "i-1", Role: inventory.RoleWorker, State: "running", PrivateAddress: "10.0.0.7"}
}

func TestChoose(t *testing.T) {
	bastion := worker()
	bastion.ID, bastion.Role = "i-2", inventory.RoleBastion
	stopped := worker()
	stopped.State = "stopped"
	base := Facts{Cluster: "demo", Region: "us-east-1", Machine: worker(), User: "admin", Tools: Tools()}
	jump := "ProxyCommand=ssh -o HostKeyAlias=bastion.demo -o StrictHostKeyChecking=accept-new -W %h:%p admin@lb.example"
	options := "ssh -o HostKeyAlias=i-1 -o StrictHostKeyChecking=accept-new "
	for _, c := range []struct {
		name  string
		facts func(*Facts)
		req   Request
		want  string // the command
		err   string
	}{
		{name: "nothing", err: "no way to a shell on i-1: session-manager: spec.machineAccess.sessionManager is false"},
		{name: "session", facts: func(f *Facts) { f.SessionManager = true }, want: "aws ssm start-session --region us-east-1 --target i-1"},
		{
			name: "session with profile and command", facts: func(f *Facts) { f.SessionManager, f.Profile = true, "ops" }, req: Request{Command: []string{"uptime", "-p"}},
			want: `aws ssm start-session --region us-east-1 --profile ops --target i-1 --document-name AWS-StartInteractiveCommand --parameters {"command":["uptime -p"]}`,
		},
		{name: "session without the plugin", facts: func(f *Facts) { f.SessionManager, f.Tools = true, []string{"aws", "ssh"} }, err: "session-manager: session-manager-plugin is not installed here"},
		{
			name: "session without the plugin, printed", facts: func(f *Facts) { f.SessionManager, f.Tools = true, nil }, req: Request{PrintOnly: true},
			want: "aws ssm start-session --region us-east-1 --target i-1",
		},
		{name: "the plugin is missing and a bastion is there", facts: func(f *Facts) {
			f.SessionManager, f.Tools, f.BastionHost, f.BastionUser = true, []string{"ssh"}, "lb.example", "admin"
		}, want: options + "-o " + jump + " admin@10.0.0.7"},
		{name: "direct", facts: func(f *Facts) { f.OpenAddress = "192.0.2.1" }, want: options + "admin@192.0.2.1"},
		{name: "proxy command", facts: func(f *Facts) { f.ProxyCommand, f.OpenAddress = "vpn connect %h %p", "192.0.2.1" }, want: options + "-o ProxyCommand=vpn connect %h %p admin@10.0.0.7"},
		{name: "direct before bastion", facts: func(f *Facts) { f.OpenAddress, f.BastionHost, f.BastionUser = "192.0.2.1", "lb.example", "admin" }, want: options + "admin@192.0.2.1"},
		{
			name: "bastion when asked for", facts: func(f *Facts) { f.OpenAddress, f.BastionHost, f.BastionUser = "192.0.2.1", "lb.example", "admin" },
			req: Request{Path: Bastion, Command: []string{"uptime"}}, want: options + "-o " + jump + " admin@10.0.0.7 -- uptime",
		},
		{name: "key with a quote", facts: func(f *Facts) { f.BastionHost, f.BastionUser = "lb.example", "admin" }, req: Request{Identity: "/a 'b%"}, want: options +
			`-i /a 'b% -o ProxyCommand=ssh -o HostKeyAlias=bastion.demo -o StrictHostKeyChecking=accept-new -i '/a '\''b%%' -W %h:%p admin@lb.example admin@10.0.0.7`},
		{name: "user", facts: func(f *Facts) { f.OpenAddress, f.User = "192.0.2.1", "" }, req: Request{User: "me"}, want: options + "me@192.0.2.1"},
		{name: "unknown login", facts: func(f *Facts) { f.OpenAddress, f.User = "192.0.2.1", "" }, err: "direct: the login of the machine's image is not known; give --user"},
		{name: "the bastion itself", facts: func(f *Facts) { f.Machine, f.BastionHost = bastion, "lb.example" }, want: "ssh -o HostKeyAlias=i-2 -o StrictHostKeyChecking=accept-new admin@lb.example"},
		{name: "endpoint", facts: func(f *Facts) { f.InstanceConnect = true }, want: "aws ec2-instance-connect ssh --region us-east-1 --instance-id i-1 --connection-type eice --os-user admin"},
		{name: "a path that is not possible", facts: func(f *Facts) { f.OpenAddress = "192.0.2.1" }, req: Request{Path: Bastion}, err: "bastion: the cluster has no bastion"},
		{name: "an unknown path", req: Request{Path: "carrier-pigeon"}, err: `invalid --via "carrier-pigeon"`},
		{name: "a stopped machine", facts: func(f *Facts) { f.Machine = stopped }, err: "machine i-1 is stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := base
			if c.facts != nil {
				c.facts(&f)
			}
			got, err := Choose(f, c.req)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || len(diag.Hints(err)) == 0 {
					t.Fatalf("got %v, %v, want an error with a hint: %s", got, err, c.err)
				}
				return
			}
			if err != nil || strings.Join(got.Args, " ") != c.want {
				t.Errorf("got\n  %s (%v), want\n  %s", strings.Join(got.Args, " "), err, c.want)
			}
		})
	}
}

func TestLoginOf(t *testing.T) {
	for image, want := range map[string]string{
		"ssm:/aws/service/debian/release/12/latest/amd64":                                        "admin",
		"ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": "ubuntu",
		"ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64":              "ec2-user",
		"075585003325/Flatcar-stable-*-hvm":                                                      "core",
		"ami-0123":                                                                               "",
	} {
		if got := LoginOf(image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

// TestHasSSHServer: an open port is not an SSH server yet.
func TestHasSSHServer(t *testing.T) {
	for greeting, want := range map[string]bool{"SSH-2.0-OpenSSH_9.2\r\n": true, "HTTP/1.1 400\r\n": false, "": false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = conn.Write([]byte(greeting))
				_ = conn.Close()
			}
		}()
		if got := hasSSHServer(t.Context(), l.Addr().String()); got != want {
			t.Errorf("%q: %v", greeting, got)
		}
		_ = l.Close()
		if hasSSHServer(t.Context(), l.Addr().String()) {
			t.Error("a closed port answers")
		}
	}
}
