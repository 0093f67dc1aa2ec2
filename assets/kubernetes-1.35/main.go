// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is one binary with all Kubernetes programs of a cluster. The name that it is
// started by selects the program. It does not know how it is packed into files and images.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as in upstream's mains
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in upstream's mains
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric, as in upstream's mains
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programCommands maps the name of a program to the constructor of its command.
func programCommands() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kube-proxy":              proxy.NewProxyCommand,
		"kubelet": func() *cobra.Command {
			return kubelet.NewKubeletCommand(context.Background())
		},
		"kubectl": kubectl.NewDefaultKubectlCommand,
	}
}

func main() {
	name := filepath.Base(os.Args[0])
	known := programCommands()
	if known[name] == nil && len(os.Args) > 1 {
		// Started under the binary's own name: the first argument selects the program.
		os.Args = os.Args[1:]
		name = filepath.Base(os.Args[0])
	}

	build := known[name]
	if build == nil {
		names := slices.Sorted(maps.Keys(known))
		fmt.Fprintf(os.Stderr, "unknown program %q, want one of %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}

	if name == "kubectl" {
		// kubectl prints its own errors.
		if err := cli.RunNoErrOutput(build()); err != nil {
			kubectlutil.CheckErr(err)
		}

		return
	}

	os.Exit(cli.Run(build()))
}
