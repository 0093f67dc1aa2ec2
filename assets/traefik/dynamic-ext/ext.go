// SPDX-License-Identifier: Apache-2.0

// Package ext is in the place of a part of Traefik that its module names and does not contain. It adds no settings.
package ext

// HTTP has no further settings of HTTP.
type HTTP struct{}

// Router has no further settings of a router.
type Router struct{}
