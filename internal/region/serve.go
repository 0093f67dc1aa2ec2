// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/ecr"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/image"
	"github.com/slipway-k8s/slipway/internal/region/imds"
	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/network"
	"github.com/slipway-k8s/slipway/internal/region/services"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// transitionDelay is how long load balancers, gateways and the like take to become ready: long enough that a
// client must wait for them, short enough for a person.
const transitionDelay = 200 * time.Millisecond

// machineAPIURL is the URL of the region's API inside VPCs.
const machineAPIURL = "http://198.18.0.1"

// ServeOptions are the options of [Serve]. All are required.
type ServeOptions struct {
	CacheDir string       // see [Options]
	Registry http.Handler // OCI registry inside VPCs
	Now      func() time.Time
	Log      io.Writer
}

// regionProcess is the process of a region: its services, its machines and its network.
type regionProcess struct {
	settings Settings
	paths    regionPaths
	now      func() time.Time
	log      *slog.Logger
	faults   *fault.Engine
	services *services.Services
	host     *machine.Host
	network  *network.Network
}

// Serve runs the region until ctx ends. The machines and networks keep running.
func Serve(ctx context.Context, o ServeOptions) error {
	p := regionPaths{o.CacheDir}
	s, err := loadSettings(p)
	if err != nil {
		return err
	}

	r := &regionProcess{
		settings: s,
		paths:    p,
		now:      o.Now,
		faults:   &fault.Engine{},
		log:      slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if err := r.buildServices(o.Registry); err != nil {
		return err
	}

	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", s.Port))
	if err != nil {
		return fmt.Errorf("listen for the region: %w", err)
	}

	return r.serveUntilDone(ctx, ln)
}

// buildServices builds the network, the machine host and the services over them. The network serves the API
// inside VPCs, so it needs the services, which need the network: its handlers look up the services at each
// request.
func (r *regionProcess) buildServices(registry http.Handler) (err error) {
	if err := r.buildNetwork(registry); err != nil {
		return err
	}

	if err := r.buildMachineHost(); err != nil {
		return err
	}

	r.services, err = services.New(services.Config{
		Region:           r.settings.Region,
		Account:          r.settings.Account,
		AccessKeyID:      r.settings.AccessKey,
		SecretKey:        r.settings.SecretKey,
		Now:              r.now,
		Log:              r.log,
		State:            state.Dir(r.paths.stateDir()),
		S3Dir:            filepath.Join(r.paths.stateDir(), "s3"),
		RegistryDir:      filepath.Join(r.paths.stateDir(), "images"),
		Faults:           r.faults,
		FunctionDir:      filepath.Join(r.paths.regionDir(), "functions"),
		Endpoint:         r.settings.Endpoint,
		TransitionDelay:  transitionDelay,
		Visibility:       visibility.Delay{Time: r.settings.visibilityDelay()},
		Images:           publicImages(),
		Unbootable:       r.paths.unbootableReason,
		PublicParameters: publicParameters(),
		Machines:         networkedHost{r.host, r.network},
		Network:          r.network,
		PublicAddresses:  r.settings.publicAddressRange(),
		Loopback:         r.settings.balancerLoopback(),
		SignalURL:        machineAPIURL,
		KillCaller:       killPeer,
	})
	if err != nil {
		return err
	}

	r.services.S3.MountDir(AssetsBucket, r.paths.assetsDir())

	return nil
}

// buildNetwork builds the network of the machines, with the API, the registry and the metadata service inside
// it.
func (r *regionProcess) buildNetwork(registry http.Handler) (err error) {
	metadata := sync.OnceValue(r.metadataHandler)
	r.network, err = network.New(network.Options{
		RegionID: r.settings.ID,
		Registry: registry,
		Log:      r.log,
		API: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			r.services.Handler().ServeHTTP(w, q)
		}),
		RequestService: func(q *http.Request) string { return r.services.EndpointService(q) },
		ServiceNames:   ecr.Hosts(r.settings.Account, r.settings.Region),
		Metadata: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			metadata().ServeHTTP(w, q)
		}),
	})

	return err
}

// buildMachineHost builds the host of the machines, which is this computer.
func (r *regionProcess) buildMachineHost() (err error) {
	r.host, err = machine.New(machine.Config{
		Region:     r.settings.ID,
		Dir:        r.paths.regionDir(),
		Namespaces: r.network,
		Etc:        ecr.ClientFiles(r.settings.Account, r.settings.Region),
		ImageRoot: func(id string) (string, error) {
			img, err := image.Find(r.paths.imageDir(), id)
			return img.Root, err
		},
	})

	return err
}

// metadataHandler returns the handler of the instance metadata service. Its credentials come from IAM.
func (r *regionProcess) metadataHandler() http.Handler {
	source := r.services.EC2.Metadata(func(instance, role string) (ec2.Credentials, error) {
		c, err := r.services.IAM.IssueRoleCredentials(role, instance)
		return ec2.Credentials{
			AccessKeyID:     c.AccessKeyID,
			SecretAccessKey: c.SecretAccessKey,
			Token:           c.Token,
			Expiration:      c.Expiration,
		}, err
	})

	h, err := imds.New(imds.Options{
		Source: source,
		Clock:  r.now,
		Log:    r.log,
		RequestOrigin: func(ctx context.Context) (string, netip.Addr, bool) {
			s, ok := network.RequestSourceFrom(ctx)
			return s.VPC, s.Addr, ok
		},
	})
	if err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		})
	}

	return h
}

// networkedHost is the machine host for EC2. Its Stop and Terminate also release the machine's network.
type networkedHost struct {
	*machine.Host
	network *network.Network
}

// Stop ends a machine, keeps its disk, and releases its network namespace.
func (g networkedHost) Stop(ctx context.Context, id string) error {
	return errors.Join(g.Host.Stop(ctx, id), g.network.Release(ctx, id))
}

// Terminate ends a machine and releases its network namespace.
func (g networkedHost) Terminate(ctx context.Context, id string) error {
	return errors.Join(g.Host.Terminate(ctx, id), g.network.Release(ctx, id))
}

// serveUntilDone serves on ln and runs the services' background work until ctx ends.
func (r *regionProcess) serveUntilDone(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Slipway-Region", r.settings.ID)
	})
	mux.Handle(
		faultsPath+"/",
		http.StripPrefix(faultsPath, r.faults.AdminHandler(fault.AdminToken(r.settings.SecretKey))),
	)

	mux.Handle("/", r.services.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}

	var wg sync.WaitGroup
	wg.Go(func() { r.services.Run(ctx) })
	wg.Go(func() {
		<-ctx.Done()
		_ = srv.Close() // Serve returns in any case
	})

	err := srv.Serve(ln)
	wg.Wait()
	r.network.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}

	return fmt.Errorf("serve the region: %w", err)
}
