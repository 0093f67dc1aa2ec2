// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/apis/config/cainjector"
	_ "github.com/cert-manager/cert-manager/internal/cainjector/feature" // its feature gates
	"github.com/cert-manager/cert-manager/internal/kube"
	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/cainjector/configfile"
	injector "github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
)

// newInjector returns the program that writes certificate authorities into webhooks, APIServices and custom kinds.
func newInjector() program {
	file := configfile.New()

	return program{
		file: file,
		common: func() (*logsapi.LoggingConfiguration, map[string]bool) {
			return &file.Config.Logging, file.Config.FeatureGates
		},
		run: func(ctx context.Context) error { return inject(ctx, file.Config) },
	}
}

// inject runs the injector.
func inject(ctx context.Context, c *cainjector.CAInjectorConfiguration) error {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme,
		certmanager.AddToScheme,
		apiregistration.AddToScheme,
		apiextensions.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			return err
		}
	}

	connection, err := kube.BuildClientConfig("", c.KubeConfig)
	if err != nil {
		return fmt.Errorf("connect to Kubernetes: %w", err)
	}

	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(connection, "cainjector"), managerOptions(c, kinds))
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}

	if err := injector.RegisterAllInjectors(ctx, manager, injectorOptions(c)); err != nil {
		return fmt.Errorf("register the injectors: %w", err)
	}

	return manager.Start(ctx)
}

// managerOptions returns the options of the manager. Secrets are read when they are needed: only their metadata is cached.
func managerOptions(c *cainjector.CAInjectorConfiguration, kinds *runtime.Scheme) ctrl.Options {
	options := ctrl.Options{
		Scheme:                        kinds,
		Logger:                        logs.Log.WithName("cainjector"),
		LeaderElection:                c.LeaderElectionConfig.Enabled,
		LeaderElectionNamespace:       c.LeaderElectionConfig.Namespace,
		LeaderElectionID:              "cert-manager-cainjector-leader-election",
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &c.LeaderElectionConfig.LeaseDuration,
		RenewDeadline:                 &c.LeaderElectionConfig.RenewDeadline,
		RetryPeriod:                   &c.LeaderElectionConfig.RetryPeriod,
		Metrics:                       server.Options{BindAddress: c.MetricsListenAddress},
		Client: client.Options{
			Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}},
		},
	}
	if c.Namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{c.Namespace: {}}
	}

	return options
}

// injectorOptions returns the options of the injectors.
func injectorOptions(c *cainjector.CAInjectorConfiguration) injector.SetupOptions {
	return injector.SetupOptions{
		Namespace:                    c.Namespace,
		IgnoreNamespaces:             c.IgnoreNamespaces,
		EnableCertificatesDataSource: c.EnableDataSourceConfig.Certificates,
		EnabledReconcilersFor: map[string]bool{
			injector.MutatingWebhookConfigurationName:   c.EnableInjectableConfig.MutatingWebhookConfigurations,
			injector.ValidatingWebhookConfigurationName: c.EnableInjectableConfig.ValidatingWebhookConfigurations,
			injector.APIServiceName:                     c.EnableInjectableConfig.APIServices,
			injector.CustomResourceDefinitionName:       c.EnableInjectableConfig.CustomResourceDefinitions,
		},
	}
}
