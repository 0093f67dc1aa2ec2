// SPDX-License-Identifier: Apache-2.0

// Package iam holds the region's users, roles, instance profiles, policies and temporary credentials, and decides by
// them what a caller may do. It knows no other service and no signature.
package iam

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config is what an [IAM] is made of. All of it is required but Rand.
type Config struct {
	Account     string // 12 digits
	AccessKeyID string // of the account's root
	SecretKey   string
	State       state.Backend
	Now         func() time.Time
	Rand        io.Reader // of ids and secrets; nil means crypto/rand
	// Trace, if set, sees every question that a policy decides: those of a caller that is not the root.
	Trace func(authz.Request, authz.Decision)
}

// IAM is the identity service of one account.
type IAM struct {
	cfg Config

	st    serviceState
	store *state.Store
}

// serviceState is what is kept over a restart. Every map is by name, but Policies by ARN and Sessions by access key id.
type serviceState struct {
	Roles    map[string]*role            `json:"roles"`
	Users    map[string]*user            `json:"users"`
	Profiles map[string]*instanceProfile `json:"profiles"`
	Policies map[string]*managedPolicy   `json:"policies"`
	Sessions map[string]*roleSession     `json:"sessions"`
}

// identity is what a role and a user have in common.
type identity struct {
	Name     string            `json:"name"`
	ID       string            `json:"id"`
	Path     string            `json:"path"`
	Created  time.Time         `json:"created"`
	Tags     map[string]string `json:"tags,omitempty"`
	Inline   map[string]string `json:"inline,omitempty"`
	Attached []string          `json:"attached,omitempty"` // ARNs, sorted
}

type role struct {
	identity
	Trust       string `json:"trust"`
	Description string `json:"description,omitempty"`
	MaxSession  int64  `json:"maxSession"` // seconds
}

type user struct {
	identity
	Keys map[string]*accessKey `json:"keys,omitempty"`
}

type accessKey struct {
	Secret  string    `json:"secret"`
	Active  bool      `json:"active"`
	Created time.Time `json:"created"`
}

type instanceProfile struct {
	Name    string            `json:"name"`
	ID      string            `json:"id"`
	Path    string            `json:"path"`
	Created time.Time         `json:"created"`
	Tags    map[string]string `json:"tags,omitempty"`
	Role    string            `json:"role,omitempty"`
}

// roleSession is a role that somebody has assumed.
type roleSession struct {
	Role     string    `json:"role"`
	RoleID   string    `json:"roleId"`
	Name     string    `json:"name"`
	Secret   string    `json:"secret"`
	Token    string    `json:"token"`
	Expires  time.Time `json:"expires"`
	Policies []string  `json:"policies,omitempty"` // documents that narrow the role's own
}

// New loads an account's state, or begins an empty one.
func New(cfg Config) (*IAM, error) {
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}

	s := &IAM{cfg: cfg, st: serviceState{
		Roles:    map[string]*role{},
		Users:    map[string]*user{},
		Profiles: map[string]*instanceProfile{},
		Policies: map[string]*managedPolicy{},
		Sessions: map[string]*roleSession{},
	}}
	s.store = &state.Store{Name: "iam", Backend: cfg.State, State: &s.st}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	return s, nil
}

// SaveTo writes what the service knows to another place, for a snapshot.
func (s *IAM) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// newUniqueID makes a unique id such as AROA… of the given length.
func (s *IAM) newUniqueID(prefix string, length int) (string, error) {
	text, err := s.randomText(length)
	if err != nil {
		return "", err
	}

	return prefix + base32.StdEncoding.EncodeToString([]byte(text))[:length-len(prefix)], nil
}

// newSecret makes n random characters of base64.
func (s *IAM) newSecret(n int) (string, error) {
	text, err := s.randomText(n)
	return base64.StdEncoding.EncodeToString([]byte(text))[:n], err
}

func (s *IAM) randomText(n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.cfg.Rand, b); err != nil {
		return "", fmt.Errorf("make a random id: %w", err)
	}

	return string(b), nil
}

// entityARN is the ARN of an entity of this account, such as role/path/name.
func (s *IAM) entityARN(kind, path, name string) string {
	return "arn:aws:iam::" + s.cfg.Account + ":" + kind + path + name
}

func (r *role) roleARN(s *IAM) string { return s.entityARN("role", r.Path, r.Name) }
func (u *user) userARN(s *IAM) string { return s.entityARN("user", u.Path, u.Name) }
func (p *instanceProfile) profileARN(s *IAM) string {
	return s.entityARN("instance-profile", p.Path, p.Name)
}

// FindKey implements [wire.Keys].
func (s *IAM) FindKey(id string) (wire.AccessKey, bool) {
	if id == s.cfg.AccessKeyID {
		root := "arn:aws:iam::" + s.cfg.Account + ":root"
		return wire.AccessKey{
			Secret: s.cfg.SecretKey,
			Caller: wire.Caller{
				Account: s.cfg.Account,
				ARN:     root,
				UserID:  s.cfg.Account,
				Root:    true,
			},
		}, true
	}

	s.store.Lock()
	defer s.store.Unlock()
	if v, ok := s.st.Sessions[id]; ok {
		return wire.AccessKey{
			Secret:  v.Secret,
			Token:   v.Token,
			Expires: v.Expires,
			Caller: wire.Caller{
				Account: s.cfg.Account,
				ARN:     s.sessionARN(v),
				UserID:  v.RoleID + ":" + v.Name,
				Role:    v.Role,
				Session: v.Name,
			},
		}, true
	}

	for _, u := range s.st.Users {
		if k, ok := u.Keys[id]; ok && k.Active {
			return wire.AccessKey{
				Secret: k.Secret,
				Caller: wire.Caller{Account: s.cfg.Account, ARN: u.userARN(s), UserID: u.ID},
			}, true
		}
	}

	return wire.AccessKey{}, false
}

func (s *IAM) sessionARN(v *roleSession) string {
	return "arn:aws:sts::" + s.cfg.Account + ":assumed-role/" + v.Role + "/" + v.Name
}

// Credentials are temporary credentials of a role.
type Credentials struct {
	AccessKeyID, SecretAccessKey, Token string
	Expiration                          time.Time
}

// instanceSessionDuration is how long credentials of an instance's role live; EC2 hands out new ones about every six hours.
const instanceSessionDuration = 6 * time.Hour

// IssueRoleCredentials makes credentials of a role for an instance, whose id is the session's name. EC2 may do that
// for a role that trusts it, which is checked when the instance is launched.
func (s *IAM) IssueRoleCredentials(roleName, sessionName string) (Credentials, error) {
	c, _, err := s.issueCredentials(roleName, sessionName, instanceSessionDuration, nil)
	return c, err
}

// issueCredentials makes credentials and returns them with the session's ARN and unique id.
func (s *IAM) issueCredentials(
	roleName, sessionName string,
	life time.Duration,
	policies []string,
) (Credentials, wire.Caller, error) {
	var c Credentials
	var who wire.Caller
	err := s.store.Update(func() (err error) {
		c, who, err = s.newSession(roleName, sessionName, life, policies)
		return err
	})

	return c, who, err
}

// newSession adds a session to the state and returns its credentials and its caller. The caller holds the store's lock.
func (s *IAM) newSession(
	roleName, sessionName string,
	life time.Duration,
	policies []string,
) (Credentials, wire.Caller, error) {
	r, err := s.findRole(roleName)
	if err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	now := s.cfg.Now()

	for id, v := range s.st.Sessions {
		if now.After(v.Expires.Add(time.Hour)) { // an hour later nobody is told any more that it has expired
			delete(s.st.Sessions, id)
		}
	}

	v := &roleSession{
		Role:     r.Name,
		RoleID:   r.ID,
		Name:     sessionName,
		Policies: policies,
		Expires:  now.Add(life).UTC().Truncate(time.Second),
	}

	id, err := s.newUniqueID("ASIA", 20)
	if err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	if v.Secret, err = s.newSecret(40); err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	if v.Token, err = s.newSecret(220); err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	s.st.Sessions[id] = v
	who := wire.Caller{
		Account: s.cfg.Account,
		ARN:     s.sessionARN(v),
		UserID:  r.ID + ":" + v.Name,
		Role:    r.Name,
		Session: v.Name,
	}

	return Credentials{
		AccessKeyID:     id,
		SecretAccessKey: v.Secret,
		Token:           v.Token,
		Expiration:      v.Expires,
	}, who, nil
}

// InstanceProfileInfo is what a service that launches instances needs to know of an instance profile.
type InstanceProfileInfo struct {
	ARN, ID, Role string // Role is the role's name; empty for a profile without one
}

// InstanceProfile finds an instance profile by its name or ARN.
func (s *IAM) InstanceProfile(nameOrARN string) (InstanceProfileInfo, bool) {
	s.store.Lock()
	defer s.store.Unlock()
	name := nameOrARN
	if strings.HasPrefix(nameOrARN, "arn:") {
		name = nameOrARN[strings.LastIndex(nameOrARN, "/")+1:]
	}

	p, ok := s.st.Profiles[name]
	if !ok || name != nameOrARN && p.profileARN(s) != nameOrARN {
		return InstanceProfileInfo{}, false
	}

	return InstanceProfileInfo{ARN: p.profileARN(s), ID: p.ID, Role: p.Role}, true
}

// RoleARN is the ARN of the role of that name, for iam:PassRole checks.
func (s *IAM) RoleARN(name string) (string, bool) {
	s.store.Lock()
	defer s.store.Unlock()
	r, ok := s.st.Roles[name]
	if !ok {
		return "", false
	}

	return r.roleARN(s), true
}
