// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	logsapi "k8s.io/component-base/logs/api/v1"

	config "github.com/cert-manager/cert-manager/internal/apis/config/controller"
	"github.com/cert-manager/cert-manager/internal/apis/config/controller/v1alpha1"
	"github.com/cert-manager/cert-manager/internal/pem"
	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/listenerset" // registers its controller
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/configfile"
	"github.com/cert-manager/cert-manager/pkg/healthz"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"       // registers its type of issuers
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"         // as above
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned" // as above
	_ "github.com/cert-manager/cert-manager/pkg/issuer/vault"      // as above
	_ "github.com/cert-manager/cert-manager/pkg/issuer/venafi"     // as above
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/server"
)

// errLostLease means that another instance may be the leader now.
var errLostLease = errors.New("the lease of the leader election was lost")

// newController returns the program with the controllers of certificates.
func newController() program {
	file := configfile.New()

	return program{
		file: file,
		common: func() (*logsapi.LoggingConfiguration, map[string]bool) {
			return &file.Config.Logging, file.Config.FeatureGates
		},
		run: func(ctx context.Context) error { return control(ctx, file.Config) },
	}
}

// control serves metrics and health, and runs the controllers while this instance is the leader.
func control(ctx context.Context, c *config.ControllerConfiguration) error {
	limits := c.PEMSizeLimitsConfig
	pem.SetGlobalSizeLimits(pem.NewSizeLimitsFromConfig(
		limits.MaxCertificateSize,
		limits.MaxPrivateKeySize,
		limits.MaxChainLength,
		limits.MaxBundleSize,
	))

	names, err := enabledControllers(c)
	if err != nil {
		return err
	}

	options, err := contextOptions(c)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return fmt.Errorf("connect to Kubernetes: %w", err)
	}

	root, err := factory.Build()
	if err != nil {
		return fmt.Errorf("connect to Kubernetes: %w", err)
	}

	health := healthz.NewServer(c.LeaderElectionConfig.HealthzTimeout)
	if err := serveHealth(ctx, group, c, health); err != nil {
		return err
	}

	if err := serveMetrics(ctx, group, c, root); err != nil {
		return err
	}

	r := runner{factory: factory, root: root, names: names, workers: c.NumberOfConcurrentWorkers}
	group.Go(func() error {
		if !c.LeaderElectionConfig.Enabled {
			return r.run(ctx)
		}

		return r.lead(ctx, c.LeaderElectionConfig, health.LeaderHealthzAdaptor)
	})

	return group.Wait()
}

// enabledControllers returns the names of the controllers that the configuration asks for: '*' stands for the usual ones, and
// a minus excludes one.
func enabledControllers(c *config.ControllerConfiguration) ([]string, error) {
	var names []string
	for _, name := range c.Controllers {
		if name == "*" {
			names = append(names, v1alpha1.DefaultEnabledControllers...)
			continue
		}

		if !strings.HasPrefix(name, "-") {
			names = append(names, name)
		}
	}

	slices.Sort(names)
	names = slices.Compact(names)
	names = slices.DeleteFunc(names, func(name string) bool {
		// Without all namespaces there are no issuers of the cluster.
		return slices.Contains(c.Controllers, "-"+name) || c.Namespace != "" && name == clusterissuers.ControllerName
	})
	for _, name := range names {
		if controller.Known()[name] == nil {
			return nil, fmt.Errorf("controllers: unknown controller %q", name)
		}
	}

	return names, nil
}

// serveHealth serves the health of the leader election and of the clock.
func serveHealth(ctx context.Context, group *errgroup.Group, c *config.ControllerConfiguration, health *healthz.Server) error {
	listener, err := server.Listen(ctx, "tcp", c.HealthzListenAddress)
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}

	group.Go(func() error { return health.Start(ctx, listener) })

	return nil
}

// serveMetrics serves metrics without TLS, unless their address is "0".
func serveMetrics(ctx context.Context, group *errgroup.Group, c *config.ControllerConfiguration, root *controller.Context) error {
	if c.MetricsListenAddress == "0" {
		return nil
	}

	listener, err := server.Listen(ctx, "tcp", c.MetricsListenAddress)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}

	metrics := root.Metrics.NewServer(listener)
	group.Go(func() error {
		if err := metrics.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}

		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return metrics.Close()
	})

	return nil
}

// runner runs the controllers.
type runner struct {
	factory *controller.ContextFactory
	root    *controller.Context
	names   []string
	workers int // of each controller
}

// lead runs the controllers when this instance has become the leader. It returns an error if it is the leader no more.
func (r runner) lead(ctx context.Context, c config.LeaderElectionConfig, watchdog *leaderelection.HealthzAdaptor) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}

	lock, err := resourcelock.New(
		resourcelock.LeasesResourceLock,
		c.Namespace,
		"cert-manager-controller",
		r.root.Client.CoreV1(),
		r.root.Client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: host + "-external-cert-manager-controller"},
	)
	if err != nil {
		return fmt.Errorf("make the lock of the leader election: %w", err)
	}

	leading, cancel := context.WithCancel(ctx)
	defer cancel()

	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		Name:            "cert-manager-controller",
		LeaseDuration:   c.LeaseDuration,
		RenewDeadline:   c.RenewDeadline,
		RetryPeriod:     c.RetryPeriod,
		ReleaseOnCancel: true,
		WatchDog:        watchdog,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				done <- r.run(ctx)
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("configure the leader election: %w", err)
	}

	elector.Run(leading)
	if ctx.Err() != nil {
		return nil // the program ends
	}

	select {
	case err := <-done:
		return err
	default:
		return errLostLease
	}
}

// run runs all controllers until the context is done or one of them fails.
func (r runner) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range r.names {
		c, err := controller.Known()[name](r.factory)
		if err != nil {
			return fmt.Errorf("make controller %s: %w", name, err)
		}

		group.Go(func() error {
			if err := c.Run(r.workers, ctx); err != nil {
				return fmt.Errorf("controller %s: %w", name, err)
			}

			return nil
		})
	}

	// The controllers have registered what they watch.
	r.root.SharedInformerFactory.Start(ctx.Done())
	r.root.KubeSharedInformerFactory.Start(ctx.Done())
	r.root.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	if r.root.GatewaySolverEnabled {
		r.root.GWShared.Start(ctx.Done())
	}

	logs.FromContext(ctx).Info("controllers are running", "controllers", strings.Join(r.names, " "))

	return group.Wait()
}
