// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cli/userconfig"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/permissions"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/lib/filesum"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// Resolver queries the DNS. [net.Resolver] implements it.
type Resolver = cluster.Resolver

// newClusterEnv returns what the packages of internal/cluster need to know of this process.
func (a *app) newClusterEnv() *cluster.Env {
	env := &cluster.Env{
		Stores:       a.stores(),
		AWS:          a.awsConfig,
		Region:       a.region,
		Calls:        &a.calls,
		Now:          a.Now,
		Resolver:     a.Resolver,
		Registries:   a.Registries,
		Operator:     a.describeOperator(),
		User:         a.Getenv("USER"),
		Tool:         toolVersion(a.Version),
		LockTimeout:  a.lockTimeout,
		ReadOnly:     !a.yes && !isTerminal(a.Stdin),
		AgentPath:    a.Getenv("SLIPWAY_NODE_BINARY"),
		FunctionPath: a.Getenv("SLIPWAY_DNS_BINARY"),
		Sums:         filesum.Cache{Now: a.Now},
		TakeOver:     a.takeOver,
		Hooks: cluster.Hooks{
			Notify:        func(message string) { a.printMessage("%s", message) },
			Warn:          a.printFindings,
			StartProgress: a.startProgress,
			Show:          a.showReview,
			Approve:       a.approve,
		},
	}
	if env.Resolver == nil {
		env.Resolver = net.DefaultResolver
	}

	if cache, err := a.cacheDir(); err == nil { // without a cache folder nothing is cached
		env.Sums.File = filepath.Join(cache, "sums.json")
	}

	return env
}

// newLockingEnv is newClusterEnv for requests that take a cluster's lock.
func (a *app) newLockingEnv() (*cluster.Env, error) {
	env := a.newClusterEnv()
	v := a.Getenv("SLIPWAY_LOCK_LEASE")
	if v == "" {
		return env, nil
	}

	lease, err := time.ParseDuration(v)
	if err != nil || lease < time.Second || lease > time.Hour {
		return nil, withHint(
			fmt.Errorf("SLIPWAY_LOCK_LEASE=%s is not a valid lease", v),
			"give a time between 1s and 1h, or unset it for "+operation.DefaultLeaseDuration.String(),
		)
	}

	env.Lease = lease

	return env, nil
}

// describeOperator returns who runs this command.
func (a *app) describeOperator() operation.Initiator {
	user := a.flagOrEnv(a.Getenv("USER"), "LOGNAME")
	if user == "" {
		user = fmt.Sprint("uid-", os.Getuid())
	}

	host, err := a.Hostname()
	if err != nil {
		host = "unknown"
	}

	return operation.Initiator{
		Owner:   user + "@" + host,
		PID:     os.Getpid(),
		Command: "slipway " + strings.Join(a.Args, " "),
		Tool:    buildVersion(a.Version).Version,
	}
}

// storeCache opens each store once. It implements [cluster.Stores].
type storeCache struct {
	app   *app
	open  map[string]openedStore // by URL
	owner string                 // the account that must own the buckets; empty: not known yet
}

// openedStore is a store that this process has opened.
type openedStore struct {
	store  store.Store
	sealer store.Sealer
}

// stores returns the stores of this process.
func (a *app) stores() *storeCache {
	if a.storeCache == nil {
		a.storeCache = &storeCache{app: a, open: map[string]openedStore{}}
	}

	return a.storeCache
}

// StateURL returns the URL of the state store.
func (c *storeCache) StateURL() (string, error) {
	if url := c.app.flagOrEnv(c.app.stateFlag, "SLIPWAY_STATE"); url != "" {
		return url, nil
	}

	return "", withHint(
		errors.New("no state store is given"),
		"give --state URL or SLIPWAY_STATE, or set state in the configuration file: file:///dir or s3://bucket/prefix",
	)
}

// State opens the state store, which must have been initialised.
func (c *storeCache) State(ctx context.Context) (store.Store, store.Sealer, error) {
	url, err := c.StateURL()
	if err != nil {
		return nil, nil, err
	}

	return c.Open(ctx, url, "")
}

// Open opens a store. Its AWS calls go to region; empty: --region or the default of the AWS SDK.
func (c *storeCache) Open(ctx context.Context, url, region string) (store.Store, store.Sealer, error) {
	if o, ok := c.open[url]; ok {
		return o.store, o.sealer, nil
	}

	s, sealer, err := store.Open(ctx, url, c.app.storeOptions(url, region))
	if err != nil {
		return nil, nil, err
	}

	c.open[url] = openedStore{s, sealer}

	return s, sealer, nil
}

// OpenDiscovery opens the discovery store at url.
func (c *storeCache) OpenDiscovery(ctx context.Context, url, region string) (store.Store, error) {
	return store.OpenDiscovery(ctx, url, c.app.storeOptions(url, region))
}

// findOwner returns the account that must own the bucket of the store at url: that of --state-owner if the bucket has
// the state, else the caller's.
func (c *storeCache) findOwner(ctx context.Context, cfg aws.Config, url string) (string, error) {
	account := c.app.flagOrEnv(c.app.stateOwnerFlag, "SLIPWAY_STATE_OWNER")
	if err := userconfig.CheckAccount(account); account != "" && err != nil {
		return "", err
	}

	if account != "" && c.isStateBucket(url) {
		return account, nil
	}

	if c.owner != "" {
		return c.owner, nil
	}

	var err error
	c.owner, err = discovery.FindAccount(ctx, cfg)

	return c.owner, err
}

// isStateBucket reports whether the store at url is in the bucket of the state store.
func (c *storeCache) isStateBucket(url string) bool {
	stateURL, err := c.StateURL()
	if err != nil {
		return false
	}

	state, stateErr := store.ParseURL(stateURL)
	at, err := store.ParseURL(url)

	return stateErr == nil && err == nil && state.Bucket != "" && at.Bucket == state.Bucket
}

// storeOptions returns how the store at url is opened.
func (a *app) storeOptions(url, region string) store.Options {
	owner := func(ctx context.Context, cfg aws.Config) (string, error) { return a.stores().findOwner(ctx, cfg, url) }

	return store.Options{
		AWS:        func(ctx context.Context) (aws.Config, error) { return a.awsConfig(ctx, region) },
		KeyFile:    a.flagOrEnv(a.stateKeyFlag, "SLIPWAY_STATE_KEY"),
		Passphrase: a.Getenv("SLIPWAY_STATE_PASSPHRASE"),
		Owner:      owner,
		Boundary:   permissions.EnsureBoundary,
	}
}
