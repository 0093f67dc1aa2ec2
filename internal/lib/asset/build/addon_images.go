// SPDX-License-Identifier: Apache-2.0

package build

const (
	// prometheusModules begins the names of the modules of Prometheus' programs.
	prometheusModules = "github.com/prometheus/"
	// prometheusVersion tells these programs their version.
	prometheusVersion = "-X github.com/prometheus/common/version.Version={version}"
)

// addonRecipes returns the controllers of the channels in examples/addons. They are built on request, because a cluster
// needs none of them to work.
func addonRecipes() []moduleRecipe {
	return []moduleRecipe{
		{
			Name:     "metrics-server",
			Pins:     "sigs.k8s.io/metrics-server",
			Packages: []string{"tool"},
			LDFlags:  "-X k8s.io/client-go/pkg/version.gitVersion=v{version} -X k8s.io/client-go/pkg/version.gitTreeState=clean",
		},
		{
			Name:     "local-path-provisioner",
			Pins:     "github.com/rancher/local-path-provisioner",
			Packages: []string{"tool"},
			LDFlags:  "-X main.VERSION=v{version}",
		},
		{
			Name:     "aws-cloud-controller-manager",
			Pins:     "k8s.io/cloud-provider-aws",
			Packages: []string{"tool"},
			LDFlags:  "-X k8s.io/component-base/version.gitVersion=v{version} -X main.gitVersion=v{version}",
		},
		{
			Name:     "external-dns",
			Pins:     "sigs.k8s.io/external-dns",
			Packages: []string{"tool"},
			LDFlags:  "-X sigs.k8s.io/external-dns/pkg/apis/externaldns.Version=v{version}",
		},
		// Without the tag builtinassets, Prometheus reads the files of its web interface from a directory, and works without
		// them. The other tags leave out the service discovery of other platforms, which is most of its code.
		{
			Name:          "prometheus",
			Pins:          prometheusModules + "prometheus",
			Packages:      []string{"tool"},
			Tags:          "remove_all_sd enable_kubernetes_sd enable_dns_sd",
			LDFlags:       prometheusVersion,
			MinorHasMajor: true,
		},
		// Alertmanager embeds the files of its web interface, which its module does not contain.
		{
			Name:     "alertmanager",
			Pins:     prometheusModules + "alertmanager",
			Packages: []string{"./cmd/alertmanager", "./cmd/amtool"},
			LDFlags:  prometheusVersion,
			Added:    map[string]string{"ui/app/dist/README.md": "no-web-interface.md"},
		},
		{
			Name:     "node-exporter",
			Pins:     prometheusModules + "node_exporter",
			Packages: []string{"tool"},
			LDFlags:  prometheusVersion,
		},
	}
}

// addonSteps returns the names of the steps that only images of add-ons need.
func addonSteps() []string {
	names := []string{busyboxDebianLayer().name}
	for _, r := range addonRecipes() {
		names = append(names, r.Name)
	}

	return names
}

// addonImages returns the images of the controllers, by the names of their upstream registries. That of busybox has
// Debian 12's program, in the version that its tag says.
func addonImages() []imageRecipe {
	return []imageRecipe{
		{
			Name:       "metrics-server",
			Module:     "metrics-server",
			Ref:        "registry.k8s.io/metrics-server/metrics-server:v{version}",
			Layers:     []string{"base", "metrics-server"},
			Entrypoint: []string{"/metrics-server"},
		},
		{
			Name:       "local-path-provisioner",
			Module:     "local-path-provisioner",
			Ref:        "docker.io/rancher/local-path-provisioner:v{version}",
			Layers:     []string{"base", "local-path-provisioner"},
			Entrypoint: []string{"/local-path-provisioner"},
		},
		{
			Name:       "aws-cloud-controller-manager",
			Module:     "aws-cloud-controller-manager",
			Ref:        "registry.k8s.io/provider-aws/cloud-controller-manager:v{version}",
			Layers:     []string{"base", "aws-cloud-controller-manager"},
			Entrypoint: []string{"/aws-cloud-controller-manager"},
		},
		{
			Name:       "external-dns",
			Module:     "external-dns",
			Ref:        "registry.k8s.io/external-dns/external-dns:v{version}",
			Layers:     []string{"base", "external-dns"},
			Entrypoint: []string{"/external-dns"},
		},
		{
			Name:       "prometheus",
			Module:     "prometheus",
			Ref:        "quay.io/prometheus/prometheus:v{version}",
			Layers:     []string{"base", "prometheus"},
			Entrypoint: []string{"/bin/prometheus"},
		},
		{
			Name:       "alertmanager",
			Module:     "alertmanager",
			Ref:        "quay.io/prometheus/alertmanager:v{version}",
			Layers:     []string{"base", "alertmanager"},
			Entrypoint: []string{"/bin/alertmanager"},
		},
		{
			Name:       "node-exporter",
			Module:     "node-exporter",
			Ref:        "quay.io/prometheus/node-exporter:v{version}",
			Layers:     []string{"base", "node-exporter"},
			Entrypoint: []string{"/bin/node_exporter"},
		},
		{
			Name:       "busybox",
			Module:     "busybox",
			Ref:        "docker.io/library/busybox:{version}",
			Layers:     []string{"base", "busybox"},
			Entrypoint: []string{"/bin/sh"},
		},
	}
}
