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

// provisioningDelay is how long load balancers, gateways and the like take to become ready: long enough that nobody can
// forget to wait, short enough for people.
const provisioningDelay = 200 * time.Millisecond

// machineAPIURL is where machines find the region's API.
const machineAPIURL = "http://198.18.0.1"

// debianOwner is the account that owns Debian's images in AWS (wiki.debian.org/Cloud/AmazonEC2Image).
const debianOwner = "136693071363"

// ServeOptions are what a region's process needs from outside.
type ServeOptions struct {
	CacheDir string
	Registry http.Handler // answers as an OCI registry inside VPCs
	Now      func() time.Time
	Log      io.Writer
}

// emulator are the region's services, before they serve.
type emulator struct {
	settings         Settings
	paths            regionPaths
	now              func() time.Time
	log              *slog.Logger
	iam              *iam.IAM
	s3               *s3.Service
	ec2              *ec2.Service
	elbv2            *elbv2.Service
	autoscaling      *autoscaling.Service
	cloudformation   *cloudformation.Service
	route53          *route53.Service
	kms              *kms.Service
	services         []wire.Service
	host             *machine.Host
	network          *network.Network
	handler          http.Handler
	faults           *fault.Engine
	serviceOfRequest func(*http.Request) string
}

// Serve runs the region until ctx ends. Machines and networks outlive it.
func Serve(ctx context.Context, o ServeOptions) error {
	p := regionPaths{o.CacheDir}
	s, err := loadSettings(p)
	if err != nil {
		return err
	}

	r := &emulator{
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

// buildServices makes every part and joins them.
func (r *emulator) buildServices(registry http.Handler) error {
	if err := r.buildIdentity(); err != nil {
		return err
	}

	if err := r.buildMachineHost(registry); err != nil {
		return err
	}

	if err := r.buildCompute(); err != nil {
		return err
	}

	front, err := server.New(server.Config{
		Region:     r.settings.Region,
		Services:   r.services,
		Keys:       r.iam,
		Authorizer: r.iam,
		Now:        r.now,
		Log:        r.log,
		Faults:     r.faults,
		Kill:       killPeer,
	})
	if err != nil {
		return err
	}

	r.serviceOfRequest = front.ServiceOf
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if h, ok := r.s3.Public(q); ok {
			h.ServeHTTP(w, q)
			return
		}

		if h, ok := r.cloudformation.SignalHandler(q); ok {
			h.ServeHTTP(w, q)
			return
		}

		front.ServeHTTP(w, q)
	})

	return nil
}

// buildIdentity makes the services that need no machine: IAM, STS, KMS, S3 and SSM.
func (r *emulator) buildIdentity() (err error) {
	saved := state.Dir(r.paths.stateDir())
	r.iam, err = iam.New(iam.Config{
		Account:     r.settings.Account,
		AccessKeyID: r.settings.AccessKey,
		SecretKey:   r.settings.SecretKey,
		State:       saved,
		Now:         r.now,
	})
	if err != nil {
		return err
	}

	r.kms, err = kms.New(kms.Config{
		Region:     r.settings.Region,
		Account:    r.settings.Account,
		State:      saved,
		Now:        r.now,
		Identities: r.iam,
	})
	if err != nil {
		return err
	}

	r.s3, err = s3.New(s3.Config{
		Dir:        r.paths.stateDir() + "/s3",
		Region:     r.settings.Region,
		Now:        r.now,
		Identities: r.iam,
		Keys:       r.kms,
	})
	if err != nil {
		return err
	}

	r.s3.Mount(AssetsBucket, r.paths.assetsDir())
	parameters, err := ssm.New(ssm.Config{
		Region:  r.settings.Region,
		Account: r.settings.Account,
		State:   saved,
		Now:     r.now,
		Public:  debianParameters(),
	})
	if err != nil {
		return err
	}

	r.services = append(
		r.services,
		r.iam.Service(),
		sts.Service(r.iam),
		r.kms.Wire(),
		r.s3.Wire(),
		parameters.Wire(),
		servicequotas.Service(servicequotas.Config{Region: r.settings.Region, Account: r.settings.Account}),
	)

	return nil
}

// buildMachineHost makes what machines stand on: their networks and this computer as their host. Both need each other and
// EC2, so the handlers that the network serves find the rest when they are asked.
func (r *emulator) buildMachineHost(registry http.Handler) (err error) {
	late := func(h func() http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { h().ServeHTTP(w, q) })
	}
	var metadata http.Handler
	var once sync.Once
	r.network, err = network.New(network.Options{
		RegionID:       r.settings.ID,
		Registry:       registry,
		Clock:          r.now,
		Log:            r.log,
		API:            late(func() http.Handler { return r.handler }),
		RequestService: func(q *http.Request) string { return r.serviceOfRequest(q) },
		Metadata: late(func() http.Handler {
			once.Do(func() { metadata = r.metadataHandler() })
			return metadata
		}),
	})
	if err != nil {
		return err
	}

	r.host, err = machine.New(machine.Config{
		Region:     r.settings.ID,
		Dir:        r.paths.regionDir(),
		Namespaces: r.network,
		ImageRoot: func(id string) (string, error) {
			img, err := image.Find(r.paths.imageDir(), id)
			return img.Root, err
		},
	})

	return err
}

// metadataHandler serves instances' metadata, with credentials from IAM.
func (r *emulator) metadataHandler() http.Handler {
	source := r.ec2.Metadata(func(instance, role string) (ec2.Credentials, error) {
		c, err := r.iam.IssueRoleCredentials(role, instance)
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

// networkedHost is the host as EC2 sees it: ending a machine gives its network back too.
type networkedHost struct {
	*machine.Host
	network *network.Network
}

// Terminate ends a machine and releases its network namespace.
func (g networkedHost) Terminate(ctx context.Context, id string) error {
	return errors.Join(g.Host.Terminate(ctx, id), g.network.Release(ctx, id))
}

// instanceProfiles is IAM as EC2 sees it.
type instanceProfiles struct{ iam *iam.IAM }

// InstanceProfile finds a profile by its name or ARN.
func (p instanceProfiles) InstanceProfile(nameOrARN string) (ec2.Profile, bool) {
	v, ok := p.iam.InstanceProfile(nameOrARN)
	arn, _ := p.iam.RoleARN(v.Role)
	return ec2.Profile{
		ARN:     v.ARN,
		ID:      v.ID,
		Role:    v.Role,
		RoleARN: arn,
	}, ok
}

// buildCompute makes EC2, load balancing and Auto Scaling.
func (r *emulator) buildCompute() (err error) {
	s := r.settings
	saved := state.Dir(r.paths.stateDir())
	r.ec2, err = ec2.New(ec2.Config{
		PublicIPBase:      s.publicAddressRange(),
		Region:            s.Region,
		Account:           s.Account,
		Now:               r.now,
		Rand:              rand.Reader,
		TransitionDelay:   provisioningDelay,
		Saver:             saved,
		Images:            debianImages(),
		Machines:          networkedHost{r.host, r.network},
		Network:           r.network,
		Profiles:          instanceProfiles{r.iam},
		Log:               r.log,
		ProvisioningDelay: r.faults.Provisioning,
	})
	if err != nil {
		return err
	}

	r.elbv2, err = elbv2.New(elbv2.Config{
		Region:       s.Region,
		Account:      s.Account,
		Now:          r.now,
		Rand:         rand.Reader,
		Delay:        provisioningDelay,
		Saver:        saved,
		Cloud:        r.ec2,
		Log:          r.log,
		Loopback:     s.balancerLoopback(),
		Provisioning: r.faults.Provisioning,
	})
	if err != nil {
		return err
	}

	r.ec2.SetLoadBalancers(r.elbv2.Balancers)
	r.route53, err = route53.New(route53.Config{
		Region:  s.Region,
		Now:     r.now,
		Rand:    rand.Reader,
		Delay:   provisioningDelay,
		Saver:   saved,
		VPC:     r.ec2.HasVPC,
		Target:  r.elbv2.HasTarget,
		Changed: r.ec2.LoadBalancersChanged,
	})
	if err != nil {
		return err
	}

	r.ec2.SetHostedZones(r.route53.Names)
	r.autoscaling, err = autoscaling.New(autoscaling.Config{
		Region:       s.Region,
		Account:      s.Account,
		Now:          r.now,
		Rand:         rand.Reader,
		Saver:        saved,
		EC2:          r.ec2,
		TargetGroups: r.elbv2,
		Log:          r.log,
	})
	if err != nil {
		return err
	}

	r.ec2.AddWatcher(r.autoscaling.RequestReconcile)
	r.services = append(r.services, r.ec2.Wire(), r.elbv2.Wire(), r.autoscaling.Wire(), r.route53.Wire())

	return r.buildCloudFormation(saved)
}

// buildCloudFormation makes CloudFormation over all the other services.
func (r *emulator) buildCloudFormation(saved state.Dir) (err error) {
	r.cloudformation, err = cloudformation.New(cloudformation.Config{
		Region:     r.settings.Region,
		Account:    r.settings.Account,
		Now:        r.now,
		Rand:       rand.Reader,
		State:      saved,
		Zones:      r.ec2.Zones(),
		Services:   r.services,
		Authorizer: r.iam,
		Roles:      r.iam,
		Log:        r.log,
		SignalURL:  machineAPIURL,
		SystemTaggers: map[string]cloudformation.SystemTagger{
			"elasticloadbalancing": r.elbv2.Mark, "iam": r.iam.Mark, "kms": r.kms.Mark, "route53": r.route53.Mark,
		},
	})
	if err == nil {
		r.services = append(r.services, r.cloudformation.Wire())
	}

	return err
}

// serveUntilDone serves on ln and keeps the background work going until ctx ends.
func (r *emulator) serveUntilDone(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Slipway-Region", r.settings.ID)
	})
	mux.Handle(
		faultsPath+"/",
		http.StripPrefix(faultsPath, r.faults.Handler(fault.Token(r.settings.SecretKey))),
	)

	mux.Handle("/", r.handler)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	var wg sync.WaitGroup
	for _, work := range []func(context.Context){r.ec2.Run, r.elbv2.Run, r.autoscaling.Run, r.cloudformation.Run} {
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
