// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	config "github.com/cert-manager/cert-manager/internal/apis/config/controller"
	"github.com/cert-manager/cert-manager/pkg/controller"
	dnsutil "github.com/cert-manager/cert-manager/pkg/issuer/acme/dns/util"
)

// contextOptions returns what the controllers get of the configuration.
func contextOptions(c *config.ControllerConfiguration) (controller.ContextOptions, error) {
	acme, err := acmeOptions(c)
	if err != nil {
		return controller.ContextOptions{}, err
	}

	return controller.ContextOptions{
		APIServerHost:      c.APIServerHost,
		Kubeconfig:         c.KubeConfig,
		KubernetesAPIQPS:   c.KubernetesAPIQPS,
		KubernetesAPIBurst: c.KubernetesAPIBurst,
		Namespace:          c.Namespace,
		ACMEOptions:        acme,
		IssuerOptions: controller.IssuerOptions{
			ClusterResourceNamespace:        c.ClusterResourceNamespace,
			ClusterIssuerAmbientCredentials: c.ClusterIssuerAmbientCredentials,
			IssuerAmbientCredentials:        c.IssuerAmbientCredentials,
		},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerName:                 c.IngressShimConfig.DefaultIssuerName,
			DefaultIssuerKind:                 c.IngressShimConfig.DefaultIssuerKind,
			DefaultIssuerGroup:                c.IngressShimConfig.DefaultIssuerGroup,
			DefaultAutoCertificateAnnotations: c.IngressShimConfig.DefaultAutoCertificateAnnotations,
			ExtraCertificateAnnotations:       c.IngressShimConfig.ExtraCertificateAnnotations,
			GatewayAPIExtraProtocols:          sets.New(c.GatewayAPIConfig.ExtraProtocols...),
		},
		CertificateOptions: controller.CertificateOptions{
			EnableOwnerRef:                           c.EnableCertificateOwnerRef,
			CopiedAnnotationPrefixes:                 c.CopiedAnnotationPrefixes,
			CertificateRequestMinimumBackoffDuration: c.CertificateRequestMinimumBackoffDuration,
			CertificateRequestMaximumBackoffDuration: c.CertificateRequestMaximumBackoffDuration,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: c.MaxConcurrentChallenges},
		ConfigOptions: controller.ConfigOptions{
			EnableGatewayAPI:            c.GatewayAPIConfig.Enabled,
			EnableGatewayAPIListenerSet: c.GatewayAPIConfig.EnableListenerSet,
		},
	}, nil
}

// acmeOptions returns the options of the challenges of ACME. Without name servers of its own, a check of DNS asks those of the pod.
func acmeOptions(c *config.ControllerConfiguration) (controller.ACMEOptions, error) {
	solver := c.ACMEHTTP01Config
	servers := c.ACMEDNS01Config.RecursiveNameservers
	if len(servers) == 0 {
		servers = dnsutil.RecursiveNameservers
	}

	out := controller.ACMEOptions{
		HTTP01SolverImage:            solver.SolverImage,
		ACMEHTTP01SolverRunAsNonRoot: solver.SolverRunAsNonRoot,
		HTTP01SolverRuntimeClassName: solver.SolverRuntimeClassName,
		HTTP01SolverNameservers:      solver.SolverNameservers,
		HTTP01SolverExtraLabels:      solver.SolverExtraLabels,
		DNS01Nameservers:             servers,
		DNS01CheckAuthoritative:      !c.ACMEDNS01Config.RecursiveNameserversOnly,
		DNS01CheckRetryPeriod:        c.ACMEDNS01Config.CheckRetryPeriod,
	}

	for _, q := range []struct {
		text string
		into *resource.Quantity
	}{
		{solver.SolverResourceRequestCPU, &out.HTTP01SolverResourceRequestCPU},
		{solver.SolverResourceRequestMemory, &out.HTTP01SolverResourceRequestMemory},
		{solver.SolverResourceLimitsCPU, &out.HTTP01SolverResourceLimitsCPU},
		{solver.SolverResourceLimitsMemory, &out.HTTP01SolverResourceLimitsMemory},
	} {
		value, err := resource.ParseQuantity(q.text)
		if err != nil {
			return out, fmt.Errorf("acmeHTTP01Config: resource %q of the solver: %w", q.text, err)
		}

		*q.into = value
	}

	return out, nil
}
