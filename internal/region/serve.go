// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/autoscaling"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/image"
	"github.com/slipway-k8s/slipway/internal/region/imds"
	"github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/network"
	"github.com/slipway-k8s/slipway/internal/region/route53"
	"github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/servicequotas"
	"github.com/slipway-k8s/slipway/internal/region/ssm"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/sts"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// provisioning is how long load balancers, gateways and the like take to become ready: long enough that nobody can
// forget to wait, short enough for people.
const provisioning = 200 * time.Millisecond

// machineURL is where machines find the region's API.
const machineURL = "http://198.18.0.1"

// debianOwner is the account that owns Debian's images in AWS (wiki.debian.org/Cloud/AmazonEC2Image).
const debianOwner = "136693071363"

// ServeOptions are what a region's process needs from outside.
type ServeOptions struct {
	Cache    string
	Registry http.Handler // answers as an OCI registry inside VPCs
	Now      func() time.Time
	Log      io.Writer
}

// parts are the region's services, before they serve.
type parts struct {
	settings    Settings
	paths       paths
	now         func() time.Time
	log         *slog.Logger
	iam         *iam.IAM
	s3          *s3.Service
	ec2         *ec2.Service
	elb         *elbv2.Service
	autoscaling *autoscaling.Service
	stacks      *cloudformation.Service
	names       *route53.Service
	keys        *kms.Service
	services    []wire.Service
	host        *machine.Host
	network     *network.Network
	front       http.Handler
	faults      *fault.Engine
	serviceOf   func(*http.Request) string
}

// Serve runs the region until ctx ends. Machines and networks outlive it.
func Serve(ctx context.Context, o ServeOptions) error {
	p := paths{o.Cache}
	s, err := loadSettings(p)
	if err != nil {
		return err
	}
	r := &parts{settings: s, paths: p, now: o.Now, faults: &fault.Engine{}, log: slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	if err := r.build(o.Registry); err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", s.Port))
	if err != nil {
		return fmt.Errorf("listen for the region: %w", err)
	}
	return r.run(ctx, ln)
}

// build makes every part and joins them.
func (r *parts) build(registry http.Handler) error {
	if err := r.buildIdentity(); err != nil {
		return err
	}
	if err := r.buildGround(registry); err != nil {
		return err
	}
	if err := r.buildCompute(); err != nil {
		return err
	}
	front, err := server.New(server.Config{
		Region: r.settings.Region, Services: r.services, Keys: r.iam, Authorizer: r.iam, Now: r.now, Log: r.log,
		Faults: r.faults, Kill: killPeer,
	})
	if err != nil {
		return err
	}
	r.serviceOf = front.ServiceOf
	r.front = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if h, ok := r.s3.Public(q); ok {
			h.ServeHTTP(w, q)
			return
		}
		if h, ok := r.stacks.Signals(q); ok {
			h.ServeHTTP(w, q)
			return
		}
		front.ServeHTTP(w, q)
	})
	return nil
}

// buildIdentity makes the services that need no machine: IAM, STS, KMS, S3 and SSM.
func (r *parts) buildIdentity() (err error) {
	saved := state.Dir(r.paths.state())
	r.iam, err = iam.New(iam.Config{
		Account: r.settings.Account, AccessKeyID: r.settings.AccessKey, SecretKey: r.settings.SecretKey, State: saved, Now: r.now,
	})
	if err != nil {
		return err
	}
	r.keys, err = kms.New(kms.Config{
		Region: r.settings.Region, Account: r.settings.Account, State: saved, Now: r.now, Identities: r.iam,
	})
	if err != nil {
		return err
	}
	r.s3, err = s3.New(s3.Config{
		Dir: r.paths.state() + "/s3", Region: r.settings.Region, Now: r.now, Identities: r.iam, Keys: r.keys,
	})
	if err != nil {
		return err
	}
	r.s3.Mount(AssetsBucket, r.paths.assets())
	parameters, err := ssm.New(ssm.Config{
		Region: r.settings.Region, Account: r.settings.Account, State: saved, Now: r.now,
		Public: debianParameters(),
	})
	if err != nil {
		return err
	}
	r.services = append(r.services, r.iam.Service(), sts.Service(r.iam), r.keys.Wire(), r.s3.Wire(), parameters.Wire(),
		servicequotas.Service(servicequotas.Config{Region: r.settings.Region, Account: r.settings.Account}))
	return nil
}

// buildGround makes what machines stand on: their networks and this computer as their host. Both need each other and
// EC2, so the handlers that the network serves find the rest when they are asked.
func (r *parts) buildGround(registry http.Handler) (err error) {
	late := func(h func() http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { h().ServeHTTP(w, q) })
	}
	var metadata http.Handler
	var once sync.Once
	r.network, err = network.New(network.Options{
		RegionID: r.settings.ID, Registry: registry, Clock: r.now, Log: r.log,
		API: late(func() http.Handler { return r.front }), ServiceOf: func(q *http.Request) string { return r.serviceOf(q) },
		Metadata: late(func() http.Handler {
			once.Do(func() { metadata = r.metadata() })
			return metadata
		}),
	})
	if err != nil {
		return err
	}
	r.host, err = machine.New(machine.Config{
		Region: r.settings.ID, Dir: r.paths.dir(), Wirer: r.network,
		Image: func(id string) (string, error) {
			img, err := image.Find(r.paths.image(), id)
			return img.Root, err
		},
	})
	return err
}

// metadata serves instances' metadata, with credentials from IAM.
func (r *parts) metadata() http.Handler {
	source := r.ec2.Metadata(func(instance, role string) (ec2.Credentials, error) {
		c, err := r.iam.IssueRoleCredentials(role, instance)
		return ec2.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, Token: c.Token, Expiration: c.Expiration}, err
	})
	h, err := imds.New(imds.Options{
		Source: source, Clock: r.now, Log: r.log,
		From: func(ctx context.Context) (string, netip.Addr, bool) {
			s, ok := network.SourceFrom(ctx)
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

// grounded is the host as EC2 sees it: ending a machine gives its network back too.
type grounded struct {
	*machine.Host
	network *network.Network
}

// Terminate ends a machine and releases its network namespace.
func (g grounded) Terminate(ctx context.Context, id string) error {
	return errors.Join(g.Host.Terminate(ctx, id), g.network.Release(ctx, id))
}

// profiles is IAM as EC2 sees it.
type profiles struct{ iam *iam.IAM }

// InstanceProfile finds a profile by its name or ARN.
func (p profiles) InstanceProfile(nameOrARN string) (ec2.Profile, bool) {
	v, ok := p.iam.InstanceProfile(nameOrARN)
	arn, _ := p.iam.RoleARN(v.Role)
	return ec2.Profile{ARN: v.ARN, ID: v.ID, Role: v.Role, RoleARN: arn}, ok
}

// buildCompute makes EC2, load balancing and Auto Scaling.
func (r *parts) buildCompute() (err error) {
	s, saved := r.settings, state.Dir(r.paths.state())
	r.ec2, err = ec2.New(ec2.Config{
		Public: s.publicRange(),
		Region: s.Region, Account: s.Account, Now: r.now, Rand: rand.Reader, Delay: provisioning, Saver: saved,
		Images:   debianImages(),
		Machines: grounded{r.host, r.network}, Network: r.network, Profiles: profiles{r.iam}, Log: r.log,
		Provisioning: r.faults.Provisioning,
	})
	if err != nil {
		return err
	}
	r.elb, err = elbv2.New(elbv2.Config{
		Region: s.Region, Account: s.Account, Now: r.now, Rand: rand.Reader, Delay: provisioning, Saver: saved, Cloud: r.ec2, Log: r.log,
		Loopback: s.loopback(), Provisioning: r.faults.Provisioning,
	})
	if err != nil {
		return err
	}
	r.ec2.SetBalancers(r.elb.Balancers)
	r.names, err = route53.New(route53.Config{
		Region: s.Region, Now: r.now, Rand: rand.Reader, Delay: provisioning, Saver: saved, VPC: r.ec2.HasVPC, Target: r.elb.HasTarget, Changed: r.ec2.Changed,
	})
	if err != nil {
		return err
	}
	r.ec2.SetHosted(r.names.Names)
	r.autoscaling, err = autoscaling.New(autoscaling.Config{
		Region: s.Region, Account: s.Account, Now: r.now, Rand: rand.Reader, Saver: saved, Cloud: r.ec2, Balancers: r.elb, Log: r.log,
	})
	if err != nil {
		return err
	}
	r.ec2.Watch(r.autoscaling.Kick)
	r.services = append(r.services, r.ec2.Wire(), r.elb.Wire(), r.autoscaling.Wire(), r.names.Wire())
	return r.buildStacks(saved)
}

// buildStacks makes CloudFormation over all the other services.
func (r *parts) buildStacks(saved state.Dir) (err error) {
	r.stacks, err = cloudformation.New(cloudformation.Config{
		Region: r.settings.Region, Account: r.settings.Account, Now: r.now, Rand: rand.Reader, Saver: saved, Zones: r.ec2.Zones(), Services: r.services,
		Authorizer: r.iam, Roles: r.iam, Log: r.log, SignalURL: machineURL,
		Mark: map[string]cloudformation.Marker{
			"elasticloadbalancing": r.elb.Mark, "iam": r.iam.Mark, "kms": r.keys.Mark, "route53": r.names.Mark,
		},
	})
	if err == nil {
		r.services = append(r.services, r.stacks.Wire())
	}
	return err
}

// run serves on ln and keeps the background work going until ctx ends.
func (r *parts) run(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Slipway-Region", r.settings.ID)
	})
	mux.Handle(faultsPath+"/", http.StripPrefix(faultsPath, r.faults.Handler(fault.Token(r.settings.SecretKey))))
	mux.Handle("/", r.front)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	var wg sync.WaitGroup
	for _, work := range []func(context.Context){r.ec2.Run, r.elb.Run, r.autoscaling.Run, r.stacks.Run} {
		wg.Go(func() { work(ctx) })
	}
	wg.Go(func() {
		<-ctx.Done()
		_ = srv.Close() // it ends either way
	})
	err := srv.Serve(ln)
	wg.Wait()
	r.network.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the region: %w", err)
}
