// SPDX-License-Identifier: Apache-2.0

package build

import "slices"

const (
	// prometheusModules begins the names of the modules of Prometheus' programs.
	prometheusModules = "github.com/prometheus/"
	// prometheusVersion tells these programs their version.
	prometheusVersion = "-X github.com/prometheus/common/version.Version={version}"
)

// addonRecipes returns the controllers of the channels in examples/addons. They are built on request, because a cluster
// needs none of them to work.
func addonRecipes() []moduleRecipe {
	recipes := []moduleRecipe{
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
		{
			Name:     certManager,
			Pins:     "github.com/cert-manager/cert-manager",
			Packages: []string{"."},
			Programs: map[string]string{"slipway": certManager}, // the last part of the path of the module
			LDFlags:  "-X github.com/cert-manager/cert-manager/pkg/util.AppVersion=v{version}",
		},
		{
			Name:     karpenter,
			Pins:     "github.com/aws/karpenter-provider-aws",
			Packages: []string{"tool"},
			Programs: map[string]string{"controller": karpenter},
			LDFlags:  "-X sigs.k8s.io/karpenter/pkg/operator.Version={version}",
		},
		vpcCNIRecipe(),
		{
			Name:     "traefik",
			Pins:     "github.com/traefik/traefik/v3",
			Packages: []string{"tool"},
			LDFlags:  "-X github.com/traefik/traefik/v3/pkg/version.Version={version}",
			Overlays: []sourceOverlay{{
				File:   "lego/dns_providers.go",
				Module: "github.com/go-acme/lego/v5",
				Path:   "providers/dns/zz_gen_dns_providers.go",
			}},
		},
	}

	return append(recipes, monitoringRecipes()...)
}

// monitoringRecipes are Prometheus, Alertmanager and the node exporter.
func monitoringRecipes() []moduleRecipe {
	return []moduleRecipe{
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
			Packages: []string{"tool"},
			LDFlags:  prometheusVersion,
			Overlays: []sourceOverlay{{
				File:    "no-web-interface.md",
				Module:  prometheusModules + "alertmanager",
				Path:    "ui/app/dist/README.md",
				IsAdded: true,
			}},
		},
		{
			Name:     "node-exporter",
			Pins:     prometheusModules + "node_exporter",
			Packages: []string{"tool"},
			LDFlags:  prometheusVersion,
		},
	}
}

// karpenter is the module of Karpenter, and its program.
const karpenter = "karpenter"

// certManager is the module with the programs of cert-manager, each of which has an image.
const certManager = "cert-manager"

// certManagerImages returns the images of cert-manager's programs.
func certManagerImages() []imageRecipe {
	var images []imageRecipe
	for _, program := range []string{"controller", "webhook", "cainjector"} {
		images = append(images, imageRecipe{
			Name:       certManager + "-" + program,
			Module:     certManager,
			Ref:        "quay.io/jetstack/cert-manager-" + program + ":v{version}",
			Layers:     []string{"base", certManager},
			Entrypoint: []string{"/" + certManager, program},
		})
	}

	return images
}

// addonSteps returns the names of the steps that only images of add-ons need.
func addonSteps() []string {
	names := []string{busyboxDebianLayer().name}
	for _, r := range addonRecipes() {
		names = append(names, r.Name)
	}

	return names
}

// monitoringImages are the images of Prometheus, Alertmanager and the node exporter.
func monitoringImages() []imageRecipe {
	return []imageRecipe{
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
	}
}

// addonImages returns the images of the controllers, by the names of their upstream registries. That of busybox has
// Debian 12's program, in the version that its tag says.
func addonImages() []imageRecipe {
	images := []imageRecipe{
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
			Name:       karpenter,
			Module:     karpenter,
			Ref:        "public.ecr.aws/karpenter/controller:{version}",
			Layers:     []string{"base", karpenter},
			Entrypoint: []string{"/" + karpenter},
		},
		{
			Name:       "traefik",
			Module:     "traefik",
			Ref:        "docker.io/library/traefik:v{version}",
			Layers:     []string{"base", "traefik"},
			Entrypoint: []string{"/traefik"},
		},
		{
			Name:       "busybox",
			Module:     "busybox",
			Ref:        "docker.io/library/busybox:{version}",
			Layers:     []string{"base", "busybox"},
			Entrypoint: []string{"/bin/sh"},
		},
	}

	return slices.Concat(images, certManagerImages(), monitoringImages(), vpcCNIImages())
}
